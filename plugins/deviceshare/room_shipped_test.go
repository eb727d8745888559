// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"strings"
	"testing"

	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/plugins/proportion"
)

// Plugin proportion adds up the queue before anybody is evicted: it keeps the job out, and once the
// job is let in, gives it nothing.
func TestAPodThatNamesMemoryGetsRoomThoughPluginProportionHasNone(t *testing.T) {
	for _, phase := range []schedulingv1beta1.PodGroupPhase{schedulingv1beta1.PodGroupPending, schedulingv1beta1.PodGroupInqueue} {
		want := asks{number: 1, memory: 2000}
		g := wants(important("high", "new", 1), want)
		g.Status.Phase = phase
		l := newLab(t, nodeOf(t, devices("n1", 1, 10000)), wants(groupOf("low", 1), asks{number: 1, memory: 9900}), g,
			on(t, "a", "low", "n1", 0, 9900), podOf("new", "new", want))
		l.oneTier(proportion.PluginName)
		keepsNoGangs(l)
		for range 10 {
			l.tick()
		}
		if !l.isBound("new") {
			t.Errorf("%s: evicted %v; told %q", phase, l.evictions(), l.status.message("new"))
		}
	}
}

// The pod does not fit the sums of the node before the victim is gone. Plugin predicates has to
// know the pod in each session.
func TestAPlaceForCPUIsKeptUntilTheVictimIsGone(t *testing.T) {
	l := newLab(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("low", 0), important("high", "new", 1),
		withGrace(lowOn(t, "a", "low", "GPU-n1-0", 9900, 60), 10), withCPUs(podOf("new", "new", asks{number: 1, memory: 9000}), 10))
	l.with("predicates")
	for range 5 {
		l.tick()
	}
	if got := l.status.message("new"); !strings.Contains(got, "starts on node n1 when these pods have left") || l.store.room.Holds() != 1 {
		t.Errorf("%d holds, ends %v; the pod is told %q", l.store.room.Holds(), l.store.room.Ends(), got)
	}
}
