// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// One queue has lent all devices to another one, and gets its half back: two for one pod, two for a
// gang, from the least important pods. A fifth device is not its own.
func (e *evictions) testReclaim(t *testing.T) {
	ctx, u := e.user(t, "reclaim")
	e.queue(ctx, t, "evictions-borrows", "", nil)
	e.queue(ctx, t, "evictions-lends", "", nil)
	in := func(queue string, p *workload.Pod) *workload.Pod { return p.Annotate(queueName, queue) }
	var pods []*workload.Pod
	for i := range e.devices {
		class := low
		if i >= 4 {
			class = middle
		}
		pods = append(pods, in("evictions-borrows", e.pod(fmt.Sprintf("borrows-%d", i), class, oneDevice(), i)))
	}
	run(ctx, t, u, pods...)

	run(ctx, t, u, in("evictions-lends", e.pod("pair", low, workload.Ask{Number: 2})))
	e.makeGang(ctx, t, u, "evictions-lends")
	member := func(name string) *workload.Pod {
		return e.pod(name, low, oneDevice()).Annotate(workload.GroupKey, "gang")
	}
	run(ctx, t, u, member("gang-0"), member("gang-1"))
	e.requireEvicted(t, u, "borrows-0", "borrows-1", "borrows-2", "borrows-3")
	for i := range 4 {
		e.requireReclaimed(ctx, t, u, fmt.Sprintf("borrows-%d", i))
	}

	if err := u.Create(ctx, in("evictions-lends", e.pod("fifth", low, oneDevice())).Build()); err != nil {
		t.Fatal(err)
	}
	e.requireAdvice(ctx, t, u, "fifth", `Other queues give nothing up: queue "evictions-lends" has`)
	e.requireEvicted(t, u, "borrows-0", "borrows-1", "borrows-2", "borrows-3")
}

// requireReclaimed waits for the event of a pod that left for one of the other queue.
func (e *evictions) requireReclaimed(ctx context.Context, t *testing.T, u *user.User, victim string) {
	t.Helper()
	const reason = `Reclaimed: makes room on %s for %s/%s, whose queue has less than it deserves; ` +
		`pods with the annotation volcano.sh/preemptable "false" are spared`
	askUntil(ctx, t, "event Reclaimed of pod "+victim, func() (bool, error) {
		said, err := u.Events(ctx, victim)
		if err == nil {
			err = fmt.Errorf("its events are %q", said)
		}
		return slices.ContainsFunc([]string{"pair", "gang-0", "gang-1"}, func(wish string) bool {
			return slices.Contains(said, fmt.Sprintf(reason, sandbox.NodeName, u.Namespace(), wish))
		}), err
	})
}
