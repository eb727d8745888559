// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/kubelet/kubelettest"
)

// quickly are times for tests in which the plugin moves.
var quickly = kubelet.MoveTimes{Patience: 1500 * time.Millisecond, Steady: 500 * time.Millisecond, Leave: 200 * time.Millisecond}

// neverBack are those of one that does not go back to a keeper.
var neverBack = kubelet.MoveTimes{Patience: quickly.Patience, Steady: long, Leave: quickly.Leave}

// patient are those of one that comes to a keeper, leaves it once, and does not go back. On a busy
// machine a keeper may not answer for a while although it is not frozen: hence the shipped
// patience.
var patient = kubelet.MoveTimes{Patience: kubelet.DefaultMoveTimes().Patience, Steady: long, Leave: quickly.Leave}

// mover is a plugin between a kubelet and a keeper that comes and goes.
type mover struct {
	t       *testing.T
	kubelet *kubelettest.Kubelet
	keeper  *keeperProcess
	p       *plugin
	// upset is set while something has been killed and its loss cannot have been announced.
	upset atomic.Bool
	pods  int
}

// newMover starts a kubelet and the plugin. Whenever the kubelet loses the slots, but for what has
// been killed, the plugin must have said before that it takes no pods.
func newMover(t *testing.T, move kubelet.MoveTimes) *mover {
	t.Helper()
	m := newKubelet(t)
	m.servePlugin(move)
	return m
}

// newKubelet is a mover without a plugin yet.
func newKubelet(t *testing.T) *mover {
	t.Helper()
	m := &mover{t: t, kubelet: kubelettest.Start(t)}
	m.keeper = &keeperProcess{t: t, kubelet: m.kubelet, dir: filepath.Join(m.kubelet.Directory, "keeper")}
	return m
}

func (m *mover) servePlugin(move kubelet.MoveTimes) {
	m.p = serveWith(m.t, m.kubelet, m.keeper.dir, move)
	m.watch()
}

func (m *mover) startKeeper() {
	m.keeper.start()
	m.t.Cleanup(func() { m.upset.Store(true) }) // before it is killed
}

// startKeeperFirst starts the keeper and waits until it listens: the plugin's patience would run
// while the process starts.
func (m *mover) startKeeperFirst() {
	m.t.Helper()
	m.startKeeper()
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("unix", filepath.Join(m.keeper.dir, "kubelet.sock"))
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("the keeper does not listen: %v", err)
		}
	}
}

func (m *mover) watch() {
	server := m.p.server
	m.kubelet.Watch(func(before, now kubelettest.Seen) {
		if before.Healthy > 0 && now.Healthy == 0 && !m.upset.Load() && server.Taken() {
			m.t.Errorf("the kubelet lost the slots while the plugin said that it takes pods: %+v, then %+v", before, now)
		}
	})
}

// settle waits until the kubelet takes the list again, through the keeper or not.
func (m *mover) settle(held bool) {
	m.t.Helper()
	m.await("the registration to be held by the keeper or not", func() bool {
		healthy := 0
		for _, h := range m.kubelet.Health() {
			if h {
				healthy++
			}
		}
		return m.p.server.Taken() && m.p.server.IsHeld() == held && healthy > 0
	})
	m.upset.Store(false)
}

func (m *mover) await(what string, done func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("still waiting for %s: taken %v, held %v, the kubelet knows %v", what, m.p.server.Taken(), m.p.server.IsHeld(), m.kubelet.Health())
		}
	}
}

// freezeKeeper freezes the keeper while it does not register: one that is frozen in the middle of
// that makes the plugin register a second time once it is thawed. The kubelet reads a list before
// it has answered the registration.
func (m *mover) freezeKeeper() {
	m.t.Helper()
	m.await("the keeper to have registered", func() bool {
		directory, err := os.Open(m.keeper.dir)
		if err != nil {
			m.t.Fatal(err)
		}
		defer func() { _ = directory.Close() }()
		return syscall.Flock(int(directory.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
	})
	m.keeper.freeze()
}

// comes lets a pod come, start and go.
func (m *mover) comes() {
	m.t.Helper()
	m.pods++
	pod := podOf("p", "1")
	pod.UID = types.UID(time.Duration(m.pods).String())
	if err := m.kubelet.Admit(pod); err != nil {
		m.t.Fatal(err)
	}
	if names, err := m.kubelet.Begin(context.Background(), pod, "main"); err != nil || len(names) != 2 {
		m.t.Fatalf("the container begins with %v, %v", names, err)
	}
	if err := m.kubelet.Forget(pod); err != nil {
		m.t.Fatal(err)
	}
}

func TestWithoutAKeeperThePluginRegistersWithTheKubelet(t *testing.T) {
	m := newMover(t, quickly)
	m.settle(false)
	m.comes()
}

func TestTheRegistrationMovesToAKeeperThatComes(t *testing.T) {
	m := newMover(t, quickly)
	m.settle(false)
	m.startKeeper()
	m.settle(true)
	m.comes()
	if _, err := os.Lstat(filepath.Join(m.kubelet.Plugins(), "test.sock")); err == nil {
		t.Error("the plugin still listens for the kubelet")
	}
}

func TestAPluginWhoseKeeperIsKilledGoesOnWithoutIt(t *testing.T) {
	m := newMover(t, quickly)
	m.startKeeper()
	m.settle(true)
	m.upset.Store(true)
	m.keeper.kill()
	m.settle(false)
	m.comes()
	m.startKeeper()
	m.settle(true)
	m.comes()
}

func TestAPluginWhoseKeeperIsFrozenGoesOnWithoutIt(t *testing.T) {
	for name, end := range map[string]func(*mover){
		"it works again": func(m *mover) { m.keeper.thaw() },
		"it is killed": func(m *mover) {
			m.upset.Store(true)
			m.keeper.kill()
			m.settle(false)
			m.comes()
			m.startKeeper()
		},
		"the plugin is killed before it works again": func(m *mover) {
			m.upset.Store(true)
			m.p.end()
			m.keeper.thaw()
			m.p.run(m.t)
			m.watch()
		},
		"the plugin is killed, and works before it does": func(m *mover) {
			m.upset.Store(true)
			m.p.end()
			m.p.run(m.t)
			m.watch()
			m.settle(false)
			m.comes()
			m.keeper.thaw()
		},
		"the kubelet restarts before": func(m *mover) {
			m.upset.Store(true)
			m.kubelet.Restart(m.t)
			m.settle(false)
			m.comes()
			m.keeper.thaw()
		},
		"the kubelet restarts afterwards": func(m *mover) {
			m.keeper.thaw()
			m.upset.Store(true)
			m.kubelet.Restart(m.t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMover(t, quickly)
			m.startKeeper()
			m.settle(true)
			m.freezeKeeper()
			m.settle(false)
			m.comes()
			end(m)
			m.settle(true)
			m.comes()
			m.rests()
		})
	}
}

// stands expects that nobody registers any more.
func (m *mover) stands() {
	m.t.Helper()
	before := m.kubelet.Registrations()
	time.Sleep(time.Second) // only to give them time: what is expected is that nothing happens
	if after := m.kubelet.Registrations(); before != after {
		m.t.Errorf("there were %d registrations and are %d", before, after)
	}
}

// rests expects an end of registrations where the plugin moves quickly: on a busy machine it may
// leave a keeper that does not answer for a while, and go back. Two that do not know of each other
// would go on for ever.
func (m *mover) rests() {
	m.t.Helper()
	m.await("a second without a registration", func() bool {
		before := m.kubelet.Registrations()
		time.Sleep(time.Second)
		return before == m.kubelet.Registrations()
	})
}

// A keeper that was frozen keeps its stream with the kubelet, whose list counts as well as the
// plugin's.
func TestAKeeperThatWasFrozenDoesNotOfferAnOldList(t *testing.T) {
	m := newMover(t, quickly)
	m.startKeeper()
	m.settle(true)
	m.freezeKeeper()
	m.settle(false)
	m.upset.Store(true)
	m.p.end()
	m.p.move = neverBack // so that what the keeper does by itself can be looked at
	m.p.set(func() { m.p.devices = m.p.devices[:1] })
	m.p.run(t)
	m.watch()
	m.settle(false)
	m.keeper.thaw()
	m.stands()
	if got := m.kubelet.Health(); len(got) != 1 {
		t.Errorf("the kubelet knows %v", got)
	}
	m.comes()
}

// A keeper that is started again and again is not gone back to.
func TestAKeeperThatRestartsAllTheTimeIsLeftAlone(t *testing.T) {
	m := newMover(t, neverBack)
	m.upset.Store(true)
	for i := 0; !m.p.server.Taken() || m.p.server.IsHeld(); i++ {
		if i == 200 {
			t.Fatal("the plugin stays with a keeper that does not stay")
		}
		m.startKeeper()
		time.Sleep(200 * time.Millisecond)
		m.keeper.kill()
	}
	m.settle(false)
	for range 3 {
		m.startKeeper()
		time.Sleep(200 * time.Millisecond)
		m.keeper.kill()
		m.comes()
	}
	m.stands()
}
