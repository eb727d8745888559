// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	volcano "volcano.sh/apis/pkg/client/clientset/versioned"

	"deviceshare/view/capture"
	"deviceshare/view/live"
)

// readCluster reads what the views need, page by page, and keeps of each object what they need.
func (o *options) readCluster(ctx context.Context) (*capture.State, error) {
	s := &capture.State{
		Taken: time.Now().UTC().Truncate(time.Second), Installation: &capture.Installation{Namespace: o.installNamespace},
	}
	_, err := o.readClusterInto(ctx, s)
	return s, err
}

// readClusterInto reads what the state is to keep: what only a simulation needs, if Scheduling is
// not nil, and the product's programs, if Installation is not nil. It returns the client that it
// asked.
func (o *options) readClusterInto(ctx context.Context, s *capture.State) (kubernetes.Interface, error) {
	config, core, err := o.connectToCluster()
	if err != nil {
		return nil, err
	}
	batch, err := connectToVolcano(config)
	if err != nil {
		return nil, err
	}
	if err := readInto(ctx, core, batch, o.configNamespace, s); err != nil {
		return nil, err
	}
	return core, readScheduling(ctx, core, o.installNamespace, s)
}

// connectToCluster returns how the cluster of kubectl's flags is reached, and a client of it.
func (o *options) connectToCluster() (*rest.Config, kubernetes.Interface, error) {
	config, err := o.flags.ToRESTConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("find the cluster: %w", err)
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return config, core, nil
}

// connectToVolcano returns a client of Volcano's objects.
func connectToVolcano(config *rest.Config) (volcano.Interface, error) {
	client, err := volcano.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return client, nil
}

func readInto(ctx context.Context, core kubernetes.Interface, batch volcano.Interface, configNamespace string, s *capture.State) error {
	scheduling := batch.SchedulingV1beta1()
	for _, list := range []struct {
		what string
		// optional resources are those of Volcano, which may not be installed, and those that few
		// answers need. Without the others every answer would be wrong.
		optional bool
		page     pager.ListPageFunc
	}{
		{"nodes", false, func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
			return core.CoreV1().Nodes().List(ctx, l)
		}},
		{"pods", false, func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
			return core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, l)
		}},
		{"queues.scheduling.volcano.sh", true, func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
			return scheduling.Queues().List(ctx, l)
		}},
		{"podgroups.scheduling.volcano.sh", true, func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
			return scheduling.PodGroups(metav1.NamespaceAll).List(ctx, l)
		}},
		{"resourcequotas", true, func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
			return core.CoreV1().ResourceQuotas(metav1.NamespaceAll).List(ctx, l)
		}},
	} {
		err := pager.New(list.page).EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
			s.Add(object)
			return nil
		})
		switch {
		case err == nil, list.optional && apierrors.IsNotFound(err):
		case list.optional && apierrors.IsForbidden(err):
			s.Forbidden = append(s.Forbidden, "list "+list.what)
		case apierrors.IsForbidden(err):
			return fmt.Errorf("you need the right to list %s in the whole cluster: %w", list.what, err)
		default:
			return fmt.Errorf("list %s: %w", list.what, err)
		}
	}
	if err := live.ReadConfig(ctx, core, configNamespace, s); err != nil {
		return err
	}
	s.Sort()
	return nil
}

func readNode(ctx context.Context, core kubernetes.Interface, name string) (*corev1.Node, error) {
	n, err := core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no node %s: see kubectl get nodes", name)
	case err != nil:
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	return n, nil
}

// readNodeState reads one node, and the device configuration.
func (o *options) readNodeState(ctx context.Context, core kubernetes.Interface, name string) (*capture.State, error) {
	n, err := readNode(ctx, core, name)
	if err != nil {
		return nil, err
	}
	s := &capture.State{Taken: time.Now(), Nodes: []*corev1.Node{n}}
	return s, live.ReadConfig(ctx, core, o.configNamespace, s)
}
