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
			m := newKubelet(t)
			takeAgain := m.kubelet.HoldRegistrations("deviceshare-proxy.sock")
			m.startKeeperFirst()
			m.servePlugin(patient)
			m.await("the keeper to be about to register", func() bool { return m.kubelet.HeldRegistrations() > 0 })
			m.keeper.freeze()
			m.settle(false)
			before := m.kubelet.Registrations()
			end(m, takeAgain)
			m.await("the plugin to register again", func() bool { return m.kubelet.Registrations() > before && m.kubelet.Calls() == "test.sock" })
			m.settle(false)
			m.comes()
			m.stands()
		})
	}
}

// newForsaken is a mover whose plugin has left its keeper, which is frozen, for good.
func newForsaken(t *testing.T) *mover {
	t.Helper()
	m := newKubelet(t)
	m.startKeeperFirst()
	m.servePlugin(patient)
	m.settle(true)
	m.freezeKeeper()
	m.settle(false)
	return m
}

// A plugin in whose way no keeper can have come registers once.
func TestAPluginThatMovesToTheKubeletRegistersOnce(t *testing.T) {
	t.Parallel()
	m := newForsaken(t)
	if n := m.kubelet.Registrations(); n != 2 {
		t.Errorf("there were %d registrations, want the keeper's and the plugin's", n)
	}
	m.stands()
}

// A keeper that finds the mark does not register, though the kubelet restarts.
func TestAKeeperThatIsSupersededDoesNotRegister(t *testing.T) {
	t.Parallel()
	m := newForsaken(t)
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
