// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"os"
	"path/filepath"
	"testing"
)

// A registration of the keeper that the kubelet takes only after the plugin's own is the one that
// it calls, and with which it forgets the plugin.
func TestAKeeperThatRegistersAfterThePluginDoesNotStandInItsWay(t *testing.T) {
	for name, end := range map[string]func(m *mover, takeAgain func()){
		"it lives on": func(m *mover, takeAgain func()) {
			m.keeper.thaw()
			takeAgain()
		},
		"it is killed right after": func(m *mover, takeAgain func()) {
			m.keeper.thaw()
			takeAgain()
			m.await("the registration of the keeper", func() bool { return m.kubelet.Reads("deviceshare-proxy.sock") })
			m.upset.Store(true)
			m.keeper.kill()
		},
		"it is killed before": func(m *mover, takeAgain func()) {
			m.keeper.kill()
			takeAgain()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			move := quickly
			move.Steady = long // it is not gone back to
			m := newMover(t, move)
			takeAgain := m.kubelet.HoldRegistrations("deviceshare-proxy.sock")
			m.startKeeper()
			m.await("the keeper to be about to register", func() bool { return m.kubelet.HeldRegistrations() > 0 })
			m.keeper.freeze()
			m.settle(false)
			before := m.registrations()
			end(m, takeAgain)
			m.await("the plugin to register again", func() bool { return m.registrations() > before && m.kubelet.Calls() == "test.sock" })
			m.settle(false)
			m.comes()
			m.stands()
		})
	}
}

// A plugin in whose way no keeper can have come registers once.
func TestAPluginThatMovesToTheKubeletRegistersOnce(t *testing.T) {
	move := quickly
	move.Steady = long
	m := newMover(t, move)
	m.startKeeper()
	m.settle(true)
	m.keeper.freeze()
	m.settle(false)
	if n := m.registrations(); n != 2 {
		t.Errorf("there were %d registrations, want the keeper's and the plugin's", n)
	}
	m.stands()
}

// A keeper that finds the mark does not register, though the kubelet restarts.
func TestAKeeperThatIsSupersededDoesNotRegister(t *testing.T) {
	move := quickly
	move.Steady = long
	m := newMover(t, move)
	m.startKeeper()
	m.settle(true)
	m.keeper.freeze()
	m.settle(false)
	m.upset.Store(true)
	m.kubelet.Restart(t)
	m.keeper.thaw()
	m.settle(false)
	m.stands()
	if m.kubelet.Reads("deviceshare-proxy.sock") {
		t.Error("the keeper has registered beside the plugin")
	}
	if _, err := os.Lstat(filepath.Join(m.keeper.dir, "superseded")); err != nil {
		t.Error(err)
	}
}

func (m *mover) registrations() int {
	seen := m.kubelet.Seen()
	return seen[len(seen)-1].Registrations
}
