// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
)

// RoomRow is how long it took to make room in one case.
type RoomRow struct {
	RoomCase
	// Took is from the first creation to the last binding, or to the first refusal. Of pods that
	// come one after the other it is the median.
	Took time.Duration
	// Left is how many pods had to leave.
	Left int
}

// RoomHead is the head of the table.
const RoomHead = `| case | pods that leave | here | KAI |
|---|---|---|---|`

// String is the row in Markdown.
func (r RoomRow) String() string {
	return fmt.Sprintf("| %s | %d | %.1f s | %s |", r.Name, r.Left, r.Took.Seconds(), r.KAI)
}

// Rooms measures how long it takes until pods are bound for which others have to leave, on so many
// nodes. It returns the rows that it has, also with an error.
func Rooms(ctx context.Context, o Options, nodes int, only string) (rows []RoomRow, err error) {
	options := sandboxOptions(o)
	if err := sandbox.Build(ctx, options); err != nil {
		return nil, fmt.Errorf("build the sandbox: %w", err)
	}
	err = withCluster(ctx, o, options, nodes, func(ctx context.Context, c *cluster) error {
		for _, r := range RoomCases(nodes) {
			if only != "" && !strings.Contains(r.Name, only) {
				continue
			}
			row, err := c.makeRoom(ctx, r, nodes)
			if err != nil {
				return fmt.Errorf("case %s: %w", r.Name, err)
			}
			rows = append(rows, row)
			c.say("  " + row.String())
		}
		return nil
	})
	return rows, err
}

// makeRoom runs one case on an empty cluster, and empties it again.
func (c *cluster) makeRoom(ctx context.Context, r RoomCase, nodes int) (RoomRow, error) {
	c.turns++
	if err := c.clients.createQueues(ctx, nodes); err != nil {
		return RoomRow{}, err
	}
	c.say(fmt.Sprintf("%s: filling %d nodes", r.Name, nodes))
	if err := c.fill(ctx, r, nodes); err != nil {
		return RoomRow{}, err
	}
	if err := c.calm(ctx); err != nil {
		return RoomRow{}, err
	}
	before := c.kubelets.left.Load()
	c.say(r.Name)
	took, err := c.await(ctx, r)
	if err != nil {
		return RoomRow{}, err
	}
	if err := checkDevices(c.kubelets.running()); err != nil {
		return RoomRow{}, err
	}
	row := RoomRow{RoomCase: r, Took: took, Left: int(c.kubelets.left.Load() - before)}
	return row, errors.Join(c.clear(ctx), c.clients.deleteQueues(ctx))
}

// fill has every device in use, or the pods that may move.
func (c *cluster) fill(ctx context.Context, r RoomCase, nodes int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not bound after %s", patience))
	defer cancel()
	if r.movable.pods > 0 {
		if err := c.clients.createMovable(ctx, nodes, r.movable); err != nil {
			return err
		}
		return c.waitBound(ctx, nodes*r.movable.pods)
	}
	spared, all := r.spared*devicesPerNode, nodes*devicesPerNode
	if err := c.clients.createLenders(ctx, "spared", spared, false); err != nil {
		return err
	}
	if err := c.waitBound(ctx, spared); err != nil {
		return err
	}
	if err := c.clients.createLenders(ctx, "fill", all-spared, true); err != nil {
		return err
	}
	return c.waitBound(ctx, all)
}

// calm waits until the scheduler has done with what there is: it has placed a pod without devices,
// and then another one.
func (c *cluster) calm(ctx context.Context) error {
	pods, _ := c.kubelets.counts()
	for i := range 2 {
		name := fmt.Sprint("calm-", i)
		if err := c.clients.createPods(ctx, name, 1, cpuOnly.spec(), nil); err != nil {
			return err
		}
		if err := c.waitBound(ctx, pods+1); err != nil {
			return err
		}
		if err := c.clients.pods.CoreV1().Pods(namespace).Delete(ctx, name+"-0", *metav1.NewDeleteOptions(0)); err != nil {
			return fmt.Errorf("delete pod %s: %w", name, err)
		}
		for all, _ := c.kubelets.counts(); all > pods; all, _ = c.kubelets.counts() {
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait until pod %s is gone: %w", name, context.Cause(ctx))
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// await creates the pods that want room and waits until they are bound, or until the last one is
// told that no evictions help. It returns how long that took.
func (c *cluster) await(ctx context.Context, r RoomCase) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no room after %s", patience))
	defer cancel()
	var took []float64
	for i := range r.turns() {
		prefix := fmt.Sprintf("wish-%d-", i)
		begin := time.Now()
		if err := c.clients.createWishes(ctx, r, prefix); err != nil {
			return 0, err
		}
		done, err := c.awaitWishes(ctx, r, prefix)
		if err != nil {
			return 0, err
		}
		took = append(took, done.Sub(begin).Seconds())
	}
	return time.Duration(median(took) * float64(time.Second)), nil
}

// awaitWishes waits until pods are bound or refused, and returns when the last one was.
func (c *cluster) awaitWishes(ctx context.Context, r RoomCase, prefix string) (last time.Time, err error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	before := c.kubelets.left.Load()
	for said := time.Now(); ; {
		bound := 0
		for name, pod := range c.kubelets.snapshot() {
			if strings.HasPrefix(name.name, prefix) && !pod.boundAt.IsZero() {
				bound++
				if pod.boundAt.After(last) {
					last = pod.boundAt
				}
			}
		}
		if r.refused != "" {
			isRefused, err := c.clients.isRefused(ctx, prefix, r.refused)
			if err != nil || isRefused {
				return time.Now(), err
			}
		} else if bound == r.Pods {
			return last, nil
		}
		if time.Since(said) > 15*time.Second {
			said = time.Now()
			c.say(fmt.Sprintf("    %d of %d pods are bound, %d pods have left", bound, r.Pods, c.kubelets.left.Load()-before))
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("wait until pods are bound, %d of %d are: %w", bound, r.Pods, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// isRefused reports whether a pod is told so.
func (c *clients) isRefused(ctx context.Context, prefix, said string) (bool, error) {
	pod, err := c.pods.CoreV1().Pods(namespace).Get(ctx, prefix+"0-0", metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("ask why a pod waits: %w", err)
	}
	for _, condition := range pod.Status.Conditions {
		if strings.Contains(condition.Message, said) {
			return true, nil
		}
	}
	return false, nil
}

// running returns the pods that have a node and were not told to leave.
func (k *kubelets) running() map[podName]seenPod {
	all := k.snapshot()
	for name, pod := range all {
		if pod.boundAt.IsZero() || pod.leaves {
			delete(all, name)
		}
	}
	return all
}
