// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/sharing"
)

// slices draws the partitions as the hardware has them, whoever they belong to.
func (s *story) slices(ctx context.Context) error {
	show, err := s.cluster.FakeGPU(ctx, "show")
	if err != nil {
		return err
	}
	drawn := false
	s.say("")
	for _, line := range strings.Split(show, "\n") {
		if strings.HasPrefix(line, "  slices ") {
			s.say("   %s", line)
			drawn = true
		}
	}
	if !drawn {
		return fmt.Errorf("no device is in mode mig:\n%s", show)
	}
	return nil
}

// share is what a pod of one container with one device holds.
func (s *story) share(ctx context.Context, name string) (sharing.Share, error) {
	p, err := s.user.Get(ctx, name)
	if err != nil {
		return sharing.Share{}, err
	}
	placement, err := user.Placement(p)
	if err != nil {
		return sharing.Share{}, err
	}
	return placement.Containers[0].Shares[0], nil
}

// index is that of the device which a pod has a share of. The device to be partitioned is none of
// them: it is to be free.
func (s *story) index(ctx context.Context, pod string) (int, error) {
	got, err := s.share(ctx, pod)
	if err != nil {
		return 0, err
	}
	inv, err := s.node(ctx, sandbox.NodeName)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(inv.Devices, func(d sharing.Device) bool { return d.ID == got.Device })
	if i < 0 || inv.Devices[i].Index == cutIndex {
		return 0, fmt.Errorf("pod %s has a share of %s, want one of another device of node %s than the one that is partitioned", pod, got.Device, inv.Node)
	}
	return inv.Devices[i].Index, nil
}

// lives names the process of every component and the container of every pod of the product: equal
// texts mean that none was restarted.
func (s *story) lives(ctx context.Context) (string, error) {
	var all []string
	for _, c := range s.cluster.Components() {
		all = append(all, fmt.Sprintf("%s %d", c.Name, c.PID))
	}
	pods, err := s.cluster.Client().CoreV1().Pods(sandbox.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list the product's pods: %w", err)
	}
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			all = append(all, fmt.Sprintf("%s %s", p.Name, c.ContainerID))
		}
	}
	return strings.Join(all, ", "), nil
}

// requireSameLives returns an error if anything was restarted since lives said before.
func (s *story) requireSameLives(ctx context.Context, before string) error {
	after, err := s.lives(ctx)
	if err == nil && after != before {
		err = fmt.Errorf("something was restarted: %s before, %s now", before, after)
	}
	return err
}

// nodeEvent waits for an event with a reason, on any node.
func (s *story) nodeEvent(ctx context.Context, reason string) (string, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := s.cluster.Client().CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return "", fmt.Errorf("list events: %w", err)
		}
		if len(list.Items) > 0 {
			return reason + ": " + list.Items[0].Message, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("wait for an event %s: %w", reason, ctx.Err())
		case <-tick.C:
		}
	}
}

// until waits for what the real node publishes.
func (s *story) until(ctx context.Context, what string, ok func(*sharing.Inventory) bool) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		inv, err := s.node(ctx, sandbox.NodeName)
		if err != nil {
			return err
		}
		if ok(&inv) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; the node publishes %+v", what, ctx.Err(), inv.Devices)
		case <-tick.C:
		}
	}
}
