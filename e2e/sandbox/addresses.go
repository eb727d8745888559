// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SchedulersLedger is what the scheduler that leads answers when it is asked what pods hold of the
// real node: JSON.
func (c *Cluster) SchedulersLedger(ctx context.Context) ([]byte, error) {
	address, err := c.PagesOf(ctx, Scheduler)
	if err != nil {
		return nil, err
	}
	token, err := c.ReaderToken(ctx)
	if err != nil {
		return nil, err
	}
	code, text, err := GetPage(ctx, address+"/deviceshare/ledger?node="+NodeName, token)
	if err != nil {
		return nil, fmt.Errorf("ask for the scheduler's ledger: %w", err)
	}
	if code != http.StatusOK {
		return nil, fmt.Errorf("ask for the scheduler's ledger: %d: %s", code, text)
	}
	return text, nil
}

// LeadingScheduler is the pod of an installed scheduler that holds the lease.
func (c *Cluster) LeadingScheduler(ctx context.Context) (*corev1.Pod, error) {
	lease, err := c.client.CoordinationV1().Leases(Namespace).Get(ctx, "deviceshare-scheduler", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("find the scheduler that leads: %w", err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return nil, fmt.Errorf("find the scheduler that leads: nobody holds the lease")
	}
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_") // its host name, which is that of the pod
	p, err := c.client.CoreV1().Pods(Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("find the scheduler that leads: %w", err)
	}
	return p, nil
}

// LibraryDir holds the libraries of the fake driver as the device plugin loads them.
func (c *Cluster) LibraryDir() string {
	if c.opts.Installed {
		return filepath.Join(c.layout.driverRoot(), driverLibraries)
	}
	return c.layout.libDir()
}
