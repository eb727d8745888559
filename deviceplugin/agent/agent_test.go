// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"deviceshare/deviceplugin/node"
)

// drained reports whether a reader was woken, and takes the token.
func drained(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestReadersAreWokenOnlyForChanges(t *testing.T) {
	a := New(node.Config{Node: "n"}, nil)
	a.Send(node.Kubelet{Knows: true})
	modes := given{"GPU-0": core, "GPU-1": core}
	a.Send(node.Configured{Settings: node.Settings{Offers: modes}})
	changes, stop := a.Changes()
	if a.State().Scanned() || drained(changes) {
		t.Error("an agent that has seen nothing claims to know something")
	}
	found := []node.Facts{{UUID: "GPU-0", PCI: "0"}, {UUID: "GPU-1", PCI: "1"}}
	steps := []struct {
		name string
		e    node.Event
		wake bool
	}{
		{"the first scan", node.Scanned{Devices: found}, true},
		{"the same scan", node.Scanned{Devices: found}, false},
		{"a device breaks", node.Faulted{Device: "GPU-0", XID: 79}, true},
		{"it stays broken for another reason", node.Silent{Device: "GPU-0", Why: "lost"}, false},
		{"it comes back", node.Answered{Device: "GPU-0", At: 1}, true},
		{"settings that change nothing", node.Configured{Settings: node.Settings{Offers: modes}}, false},
		{"settings that hide a device", node.Configured{Settings: node.Settings{Offers: given{"GPU-0": core}}}, true},
		{"the kubelet restarts", node.Kubelet{}, true},
	}
	for _, s := range steps {
		a.Send(s.e)
		if got := drained(changes); got != s.wake {
			t.Errorf("%s: woken %v, want %v", s.name, got, s.wake)
		}
	}
	stop()
	a.Send(node.Kubelet{Knows: true})
	if drained(changes) {
		t.Error("a reader that stopped was woken")
	}
	late, _ := a.Changes()
	if !drained(late) {
		t.Error("a late reader is not told that there is something")
	}
}
