// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/sharing"
	"deviceshare/sharing/factory"
)

// ledgersAgree rebuilds the ledger of the real node from the API server alone,
// checks that no share is held twice, and waits until the scheduler's says the
// same: it learns of ended pods in its next session.
func (w *world) ledgersAgree(ctx context.Context, t *testing.T) {
	t.Helper()
	inv := w.inventory(ctx, t)
	for {
		mine, err := w.rebuilt(ctx, &inv)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := w.schedulersLedger(ctx)
		if err == nil && slices.Equal(mine, theirs) {
			t.Logf("scheduler and API agree on %d shares", len(mine))
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("ledgers differ (%v):\nrebuilt from the API %q\nthe scheduler's      %q", err, mine, theirs)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// rebuilt reads every pod that holds something and records it in a new ledger.
func (w *world) rebuilt(ctx context.Context, inv *sharing.Inventory) ([]string, error) {
	pods, err := w.cluster.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	ledger := sharing.NewLedger(inv, factory.New())
	var lines []string
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Spec.NodeName != sandbox.NodeName || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || !asks(p) {
			continue
		}
		placement, err := user.Placement(p)
		if err != nil {
			return nil, err
		}
		ledger.Record(sharing.Owner(p.UID), placement)
		for _, c := range placement.Containers {
			for _, s := range c.Shares {
				lines = append(lines, line(string(p.UID), c.Container, string(s.Device), int64(s.Memory), int(s.Cores)))
			}
		}
	}
	slices.Sort(lines)
	return lines, ledger.Check()
}

// asks reports whether any container of the pod asks for devices.
func asks(p *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if n, ok := list[i].Resources.Limits["volcano.sh/vgpu-number"]; ok && n.Value() > 0 {
				return true
			}
		}
	}
	return false
}

// schedulersLedger asks the scheduler what it believes.
func (w *world) schedulersLedger(ctx context.Context) ([]string, error) {
	text, err := w.cluster.SchedulersLedger(ctx)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Nodes map[string]struct {
			Owners map[string]struct {
				Shares []struct {
					Container, Device string
					MemoryBytes       int64
					CoresPercent      int
				}
			}
			Blocked, Problems []string
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("decode the scheduler's ledger: %w", err)
	}
	node := answer.Nodes[sandbox.NodeName]
	if len(node.Blocked)+len(node.Problems) > 0 {
		return nil, fmt.Errorf("the scheduler reports blocked owners %q and problems %q", node.Blocked, node.Problems)
	}
	var lines []string
	for owner, o := range node.Owners {
		for _, s := range o.Shares {
			lines = append(lines, line(owner, s.Container, s.Device, s.MemoryBytes, s.CoresPercent))
		}
	}
	slices.Sort(lines)
	return lines, nil
}

func line(owner, container, device string, memory int64, cores int) string {
	return fmt.Sprintf("%s/%s %s %d %d%%", owner, container, device, memory, cores)
}
