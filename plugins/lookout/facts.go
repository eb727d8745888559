// SPDX-License-Identifier: Apache-2.0

package lookout

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"deviceshare/sharing/rivals"
)

// readFacts asks the cluster. It remembers the own Deployment's UID and the renewals for the next
// look.
func (l *Lookout) readFacts(ctx context.Context) (*rivals.Facts, error) {
	o := &l.options
	f := &rivals.Facts{Own: o.Own, OwnLease: o.OwnLease, Names: o.Names}
	if err := l.readDeployments(ctx, f); err != nil {
		return nil, err
	}
	renewed := map[rivals.Object]int64{}
	for _, name := range o.Names {
		leases, err := o.Client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
		switch {
		case apierrors.IsForbidden(err): // a name that was given by a flag of scheduler.extraArgs
			klog.V(3).InfoS("Leases of this name are not looked at", "name", name, "why", err)
			continue
		case err != nil:
			return nil, fmt.Errorf("list leases %s: %w", name, err)
		}
		for i := range leases.Items {
			lease := leaseOf(&leases.Items[i])
			lease.Before, renewed[lease.Object] = l.renewed[lease.Object], lease.Renewed
			f.Leases = append(f.Leases, lease)
		}
	}
	l.renewed, f.Now = renewed, time.Now().UnixMicro()
	return f, nil
}

// readDeployments reads all Deployments, in pages: a cluster may have thousands.
func (l *Lookout) readDeployments(ctx context.Context, f *rivals.Facts) error {
	list := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
		return l.options.Client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, o)
	}))
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		d, ok := object.(*appsv1.Deployment)
		if !ok {
			return fmt.Errorf("got a %T", object)
		}
		if d.Namespace == l.options.Own.Namespace && d.Name == l.options.Own.Name {
			l.uid = d.UID
		}
		f.Deployments = append(f.Deployments, deploymentOf(d))
		return nil
	})
	if err != nil {
		return fmt.Errorf("list deployments: %w", err)
	}
	return nil
}

func deploymentOf(d *appsv1.Deployment) rivals.Deployment {
	out := rivals.Deployment{Object: rivals.Object{Namespace: d.Namespace, Name: d.Name}, Replicas: ptr.Deref(d.Spec.Replicas, 1), Created: d.CreationTimestamp.Unix()}
	for i := range d.Spec.Template.Spec.Containers {
		c := &d.Spec.Template.Spec.Containers[i]
		out.Containers = append(out.Containers, rivals.Container{Image: c.Image, Words: slices.Concat(c.Command, c.Args)})
	}
	return out
}

func leaseOf(l *coordinationv1.Lease) rivals.Lease {
	out := rivals.Lease{Object: rivals.Object{Namespace: l.Namespace, Name: l.Name}, Holder: ptr.Deref(l.Spec.HolderIdentity, ""), Duration: int64(ptr.Deref(l.Spec.LeaseDurationSeconds, 0))}
	if l.Spec.RenewTime != nil {
		out.Renewed = l.Spec.RenewTime.UnixMicro()
	}
	return out
}
