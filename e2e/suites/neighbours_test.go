// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// All pods of this suite fill devices up, so that they meet wherever they may.
func filling(name string) *workload.Pod {
	return pod(name).App("main", workload.Ask{Number: 1, Memory: 1024}, "forever").Annotate(wire.UserPolicy, "binpack")
}

// testNeighbours has pods say whom they accept beside them, by themselves and by a rule of the
// scheduler's configuration.
func testNeighbours(t *testing.T, w *world) {
	t.Run("alone", func(t *testing.T) { w.isLeftAlone(t) })
	t.Run("by_label", func(t *testing.T) { w.keepsLabelsAway(t) })
	t.Run("exclusive_rule", func(t *testing.T) { w.keepsARuleApart(t) })
}

// deviceOf waits until a pod runs and returns its only device.
func deviceOf(ctx context.Context, t *testing.T, u *user.User, name string) sharing.DeviceID {
	t.Helper()
	shares := sharesOf(ctx, t, u, name)
	if len(shares) != 1 {
		t.Fatalf("pod %s has %d shares, want 1", name, len(shares))
	}
	return shares[0].Device
}

// isLeftAlone runs a small pod without neighbours: nobody comes, also after the scheduler was
// killed, and whoever wants its device is told why, until it has ended.
func (w *world) isLeftAlone(t *testing.T) {
	ctx, u := w.user(t, "neighbours-alone", 4*time.Minute)
	refused := u.Create(ctx, filling("wrong").Annotate(wire.UserNeighbours, "nobody").Annotate(wire.UserNotBeside, "app!=llm").Build())
	for _, word := range []string{wire.UserNeighbours, `unknown value "nobody"`, wire.UserNotBeside, "names pods by what they are not"} {
		if refused == nil || !strings.Contains(refused.Error(), word) {
			t.Errorf("mistakes are answered with %v, want %q", refused, word)
		}
	}
	running(ctx, t, u, filling("alone").Annotate(wire.UserNeighbours, "none").Build())
	at := deviceOf(ctx, t, u, "alone")
	wants := filling("wants").Annotate(wire.UserUseIDs, string(at)).Build()
	if err := u.Create(ctx, wants); err != nil {
		t.Fatal(err)
	}
	const rule = "pod neighbours-alone/alone on node "
	w.told(ctx, t, u.Namespace(), "wants", "with a pod that is kept apart from this one (KeptApart)", rule, " has "+wire.UserNeighbours+": none")
	if err := w.cluster.Kill(sandbox.Scheduler); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		name := fmt.Sprint("other-", i)
		running(ctx, t, u, filling(name).Build())
		if deviceOf(ctx, t, u, name) == at {
			t.Errorf("pod %s is beside a pod that accepts none", name)
		}
	}
	areHeldBack(ctx, t, u, "wants")
	if err := u.Delete(ctx, "alone"); err != nil {
		t.Fatal(err)
	}
	if got := deviceOf(ctx, t, u, "wants"); got != at {
		t.Errorf("the pod that waited runs on device %s, want %s", got, at)
	}
}

// keepsLabelsAway runs a pod that avoids a label. An edit of labels concerns pods that come.
func (w *world) keepsLabelsAway(t *testing.T) {
	ctx, u := w.user(t, "neighbours-label", 4*time.Minute)
	labelled := func(name, app string) *workload.Pod { return filling(name).Label("app", app) }
	running(ctx, t, u, labelled("shy", "web").Annotate(wire.UserNotBeside, "tier=gold; app in (llm, batch)").Build())
	at := deviceOf(ctx, t, u, "shy")
	running(ctx, t, u, labelled("web", "web").Build())
	if got := deviceOf(ctx, t, u, "web"); got != at {
		t.Fatalf("a pod that is accepted fills device %s, want %s", got, at)
	}
	for _, app := range []string{"llm", "batch"} {
		running(ctx, t, u, labelled(app, app).Build())
		if deviceOf(ctx, t, u, app) == at {
			t.Errorf("pod %s is beside one that avoids it", app)
		}
	}
	if err := u.Label(ctx, "web", "app", "llm"); err != nil {
		t.Fatal(err)
	}
	if p, err := u.Get(ctx, "web"); err != nil || p.DeletionTimestamp != nil {
		t.Errorf("an edit of a label ends a pod: %v", err)
	}
	running(ctx, t, u, labelled("picky", "any").Annotate(wire.UserNotBeside, "app=llm").Build())
	if deviceOf(ctx, t, u, "picky") == at {
		t.Error("a pod is beside one that it avoids by the label of now")
	}
}

// keepsARuleApart configures a rule as Volcano 1.15 documents it.
func (w *world) keepsARuleApart(t *testing.T) {
	ctx, u := w.user(t, "neighbours-rule", 5*time.Minute)
	w.addOption(ctx, t, "deviceshare.SchedulePolicy: ", "deviceshare.GPUExclusiveRules:", "- {app: llm}")
	running(ctx, t, u, filling("there").Label("app", "llm").Build())
	at := deviceOf(ctx, t, u, "there")
	w.hurryConfig(ctx, t)
	// One more that wants the device is told of the rule as soon as it is in force. Before, it gets
	// it.
	wants := 0
	askUntil(ctx, t, "the rule to be in force", func() (bool, error) {
		name := fmt.Sprint("llm-", wants)
		p, err := u.Get(ctx, name)
		if wants == 0 || err == nil && p.Spec.NodeName != "" {
			wants++
			name = fmt.Sprint("llm-", wants)
			return false, u.Create(ctx, filling(name).Label("app", "llm").Annotate(wire.UserUseIDs, string(at)).Build())
		}
		return err == nil && strings.Contains(unschedulable(p), "deviceshare.GPUExclusiveRules[0]: app=llm"), err
	})
	running(ctx, t, u, filling("free").Label("app", "llm").Build())
	if deviceOf(ctx, t, u, "free") == at {
		t.Error("two pods of a rule are on one device")
	}
	running(ctx, t, u, filling("other").Annotate(wire.UserUseIDs, string(at)).Build())
}
