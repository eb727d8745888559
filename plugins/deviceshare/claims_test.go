// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"testing"

	"volcano.sh/volcano/pkg/scheduler/actions/backfill"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/arguments"
	"deviceshare/plugins/deviceshare/nodes"
)

// A pod with claims that nobody allocated waits on its node for ever, and keeps the devices that it
// was given.
func TestAPodWithClaimsIsBoundOnlyWhereSomebodyAllocatesThem(t *testing.T) {
	w := newWorld(t, small(t, "n1", 4), groupOf("a", 1), groupOf("b", 1), groupOf("c", 1),
		claimsOf(podOf("sharing", "a", asks{number: 1, memory: 1000}), "gpu"), claimsOf(podOf("plain", "b", asks{}), "nic"),
		podOf("without", "c", asks{number: 1, memory: 1000}))
	w.schedule()
	ssn := w.open()
	backfill.New().Execute(ssn) // which takes pods that ask for nothing
	framework.CloseSession(ssn)
	w.eventually("the pod without claims is bound", func() bool { _, bound := w.binding("without"); return bound })
	for _, name := range []string{"sharing", "plain"} {
		if b, bound := w.binding(name); bound {
			t.Errorf("pod %s is bound to %s", name, b.Target.Name)
		}
	}
}

// Who turns on Volcano's own allocation gets what it does. A pod that has a node asks nobody any
// more, and counts in its queue.
func TestClaimsThatVolcanoAllocatesOrThatWereAllocatedAreNoMistake(t *testing.T) {
	plain := nodes.DefaultSettings()
	allocates := new(arguments.Memory).Complete(&plain, true)
	sharing, bare := claimsOf(podOf("p", "g", asks{number: 1, memory: 1000}), "gpu"), claimsOf(podOf("q", "g", asks{}), "gpu")
	if a := readAsk(sharing, allocates, nil); a == nil || a.mistakes != nil || len(a.request.Requests) != 1 {
		t.Errorf("where Volcano allocates claims, a pod with devices asks for %+v", a)
	}
	if a := readAsk(bare, allocates, nil); a != nil {
		t.Errorf("where Volcano allocates claims, a pod without devices asks for %+v", a)
	}
	if a := readAsk(sharing, &plain, nil); a.served() != nil {
		t.Errorf("where nobody does, a pod asks for %+v", a.request)
	}
	sharing.Spec.NodeName, bare.Spec.NodeName = "n1", "n1"
	if a := readAsk(sharing, &plain, nil); a.served() == nil {
		t.Error("a pod that has a node asks for nothing")
	}
	if a := readAsk(bare, &plain, nil); a != nil {
		t.Errorf("a pod without devices that has a node asks for %+v", a)
	}
}
