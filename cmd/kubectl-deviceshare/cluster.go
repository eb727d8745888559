// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
	volcano "volcano.sh/apis/pkg/client/clientset/versioned"

	"deviceshare/view/capture"
)

// The ConfigMap of the device configuration, which scheduler and device plugin read too.
const deviceConfigName, deviceConfigKey = "volcano-vgpu-device-config", "device-config.yaml"

// readCluster reads what the views need, page by page, and keeps of each object what they need.
func (o *options) readCluster(ctx context.Context) (*capture.State, error) {
	rest, err := o.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	core, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	batch, err := volcano.NewForConfig(rest)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return readFrom(ctx, core, batch, o.configNamespace)
}

func readFrom(ctx context.Context, core kubernetes.Interface, batch volcano.Interface, configNamespace string) (*capture.State, error) {
	s := &capture.State{Taken: time.Now().UTC().Truncate(time.Second)}
	scheduling := batch.SchedulingV1beta1()
	for _, list := range []struct {
		what string
		// optional resources are those of Volcano, which may not be installed.
		optional bool
		page     pager.ListPageFunc
	}{
		{"nodes", false, func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
			return core.CoreV1().Nodes().List(ctx, l)
		}},
		{"pods", false, func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
			return core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, l)
		}},
		{"queues", true, func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
			return scheduling.Queues().List(ctx, l)
		}},
		{"podgroups", true, func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
			return scheduling.PodGroups(metav1.NamespaceAll).List(ctx, l)
		}},
	} {
		err := pager.New(list.page).EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
			s.Add(object)
			return nil
		})
		if err != nil && !(list.optional && apierrors.IsNotFound(err)) {
			return nil, fmt.Errorf("list %s: %w", list.what, err)
		}
	}
	if err := readConfig(ctx, core, configNamespace, s); err != nil {
		return nil, err
	}
	s.Sort()
	return s, nil
}

// readConfig reads the device configuration. Whoever may not read it sees the default names.
func readConfig(ctx context.Context, core kubernetes.Interface, namespace string, s *capture.State) error {
	m, err := core.CoreV1().ConfigMaps(namespace).Get(ctx, deviceConfigName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		s.Unread = append(s.Unread, fmt.Sprintf("the device configuration may not be read, the default one is assumed: %v", err))
		return nil
	case err != nil:
		return fmt.Errorf("read ConfigMap %s/%s: %w", namespace, deviceConfigName, err)
	}
	if text, ok := m.Data[deviceConfigKey]; ok {
		s.DeviceConfig = &text
	}
	return nil
}
