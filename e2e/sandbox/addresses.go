// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SchedulersLedger is what the scheduler that leads answers when it is asked what pods hold of the
// real node: JSON.
func (c *Cluster) SchedulersLedger(ctx context.Context) ([]byte, error) {
	address, err := c.schedulerURL(ctx)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/deviceshare/ledger?node="+NodeName, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for the scheduler's ledger: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for the scheduler's ledger: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("ask for the scheduler's ledger: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask for the scheduler's ledger: %s: %s", answer.Status, text)
	}
	return text, nil
}

// schedulerURL is where the scheduler that leads serves its metrics and its ledger.
func (c *Cluster) schedulerURL(ctx context.Context) (string, error) {
	if !c.opts.Installed {
		return fmt.Sprintf("http://127.0.0.1:%d", c.ports.SchedulerMetrics), nil
	}
	p, err := c.LeadingScheduler(ctx)
	if err != nil {
		return "", err
	}
	return "http://" + p.Status.PodIP + ":8080", nil
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
