// SPDX-License-Identifier: Apache-2.0

package agent

import "testing"

func TestTheSchedulerLearnsWhetherAServerServesOneUserAtATime(t *testing.T) {
	m := DefaultModes()
	if !m.Powers(nil).OneUser {
		t.Error("by default a server is said to serve all users")
	}
	m.MPSUsers = "any"
	if m.Powers(nil).OneUser {
		t.Error("with --mps-users=any a server is said to serve one user at a time")
	}
}

func TestTheNodeKnowsHowMuchMemoryItHas(t *testing.T) {
	if memory, err := nodeMemory(); err != nil || memory <= 0 {
		t.Errorf("it has %d bytes (%v)", memory, err)
	}
}
