// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// The modes as these tests name them.
const (
	core    = sharing.HAMiCore
	migMode = sharing.MIG
	mpsMode = sharing.MPS
	slice   = sharing.TimeSlicing
)

func held(mode sharing.Mode, pods ...string) []node.Holder {
	var out []node.Holder
	for _, p := range pods {
		out = append(out, node.Holder{Owner: sharing.Owner(p), Pod: p, Mode: mode})
	}
	return out
}

// standing is how far a device is, as others see it: the mode it is ready for pods
// in, or why it is in none.
type standing struct {
	mode sharing.Mode
	why  string
}

// given is a configuration by device; without a mode a device is not offered.
type given map[sharing.DeviceID]sharing.Mode

func (g given) Offer(f *node.Facts) node.Offer {
	return node.Offer{Mode: g[f.UUID], Hidden: g[f.UUID] == "", MaxShares: 10}
}

// bench is a node in memory: its devices, who holds them, and what a mover did.
type bench struct {
	t     *testing.T
	locks KeyedLock
	agent *Agent
	mover *Mover
	stop  func()

	mu      sync.Mutex
	wanted  given
	entered map[sharing.DeviceID]map[sharing.Mode]bool
	holders map[sharing.DeviceID][]node.Holder
	fails   map[string]error // step of a switcher -> what it answers
	slow    chan struct{}    // when set, Enter waits for it
	told    []string
	tries   int
	asked   int    // how often the devices were looked at
	killed  func() // when set, told about every change of hardware
}

func newBench(t *testing.T, modes map[sharing.DeviceID]sharing.Mode) *bench {
	b := &bench{
		t: t, wanted: modes, entered: map[sharing.DeviceID]map[sharing.Mode]bool{}, holders: map[sharing.DeviceID][]node.Holder{},
		fails: map[string]error{},
	}
	for id := range modes {
		b.entered[id] = map[sharing.Mode]bool{}
	}
	return b
}

// start starts a mover, which a process that came anew would do.
func (b *bench) start() {
	b.startUnlooked()
	select {
	case <-b.mover.looked:
	case <-time.After(10 * time.Minute):
		b.t.Fatal("the mover never looked")
	}
}

func (b *bench) startUnlooked() {
	b.agent = New(node.Config{Node: "n", Powers: node.Powers{Switches: true, Switched: []sharing.Mode{migMode, mpsMode}}}, b)
	var found []node.Facts
	for id := range b.wanted {
		found = append(found, node.Facts{UUID: id, PCI: string(id), MIG: node.MIG{Capable: true}})
	}
	b.agent.Send(node.Configured{Settings: node.Settings{Offers: maps.Clone(b.wanted)}})
	b.agent.Send(node.Scanned{Devices: found})
	b.mover = NewMover(MoverConfig{
		Agent: b.agent, Preparers: []modes.Preparer{&state{b, migMode}, &state{b, mpsMode}}, Holders: b, Devices: &b.locks,
		Failed: func(sharing.Mode, bool) {},
	})
	b.mover.first, b.mover.most, b.mover.again = time.Millisecond, 5*time.Millisecond, 10*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = b.mover.Run(ctx) }()
	b.stop = func() { cancel(); <-ended }
	b.t.Cleanup(b.stop)
}

// shown is what others see of a device.
func (b *bench) shown(id sharing.DeviceID) standing {
	state := b.agent.State()
	inv := state.Inventory()
	d, offered := inv.Device(id)
	c, _ := state.Condition(id)
	if offered && c.Kind == node.Ready {
		return standing{mode: d.Mode}
	}
	return standing{why: c.Detail}
}

// Holders implements Holders.
func (b *bench) Holders(id sharing.DeviceID) []node.Holder {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	return append([]node.Holder{}, b.holders[id]...)
}

// Tell implements listener.
func (b *bench) Tell(_, _ node.State, notices []node.Notice) {
	for _, n := range notices {
		switch n.Kind {
		case node.ModeReached:
			b.tell("%s is in %s", n.Device, n.Mode)
		case node.ModeWaits:
			b.tell("%s waits for %d: %s", n.Device, len(n.Holders), n.Detail)
		case node.ModeFailed, node.ModeByHand:
			b.tell("%s failed: %s", n.Device, n.Detail)
		}
	}
}

func (b *bench) tell(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, fmt.Sprintf(format, args...))
}

// want edits the configuration.
func (b *bench) want(id sharing.DeviceID, m sharing.Mode) {
	b.mu.Lock()
	b.wanted[id] = m
	edited := maps.Clone(b.wanted)
	b.mu.Unlock()
	b.agent.Send(node.Configured{Settings: node.Settings{Offers: edited}})
}

// hold is a container that starts; false if the device takes none.
func (b *bench) hold(id sharing.DeviceID, m sharing.Mode, pod string) bool {
	unlock := b.locks.lockKeys(string(id))
	defer unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shown(id) != (standing{mode: m}) {
		return false
	}
	b.holders[id] = append(b.holders[id], node.Holder{Owner: sharing.Owner(pod), Pod: pod, Mode: m})
	return true
}

// release is the end of every holder of a device.
func (b *bench) release(id sharing.DeviceID) {
	b.mu.Lock()
	delete(b.holders, id)
	b.mu.Unlock()
	b.mover.Released()
}

func (b *bench) set(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
}

// await waits until the condition holds; it is asked with the bench locked.
func (b *bench) await(what string, done func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		ok := done()
		b.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("still waiting for %s; shown %+v, told %q", what, b.shown(gpu), b.told)
		}
	}
}

func (b *bench) ready(id sharing.DeviceID, m sharing.Mode) func() bool {
	return func() bool { return b.shown(id) == standing{mode: m} && b.only(id, m) }
}

// only reports that the device is in the state of this mode and of no other.
func (b *bench) only(id sharing.DeviceID, m sharing.Mode) bool {
	for _, x := range []sharing.Mode{migMode, mpsMode} {
		if b.entered[id][x] != (x == m) {
			return false
		}
	}
	return true
}

// state is a mode that is a state of the device. It refuses what hardware refuses
// and reports what its contract forbids.
type state struct {
	b    *bench
	mode sharing.Mode
}

func (s *state) Mode() sharing.Mode { return s.mode }

func (s *state) Prepare(context.Context, modes.Claim) (modes.Injection, error) {
	return modes.Injection{}, errors.New("not asked")
}

func (s *state) Unprepare(context.Context, sharing.Owner) error { return nil }

func (s *state) Entered(_ context.Context, d sharing.Device) (bool, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.b.entered[d.ID][s.mode], s.b.fails["entered "+string(s.mode)]
}

func (s *state) Enter(ctx context.Context, d sharing.Device) error {
	s.b.mu.Lock()
	slow := s.b.slow
	s.b.mu.Unlock()
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.do(d, "enter", true)
}

func (s *state) Leave(_ context.Context, d sharing.Device) error { return s.do(d, "leave", false) }

func (s *state) do(d sharing.Device, verb string, on bool) error {
	b := s.b
	if b.killed != nil {
		b.killed()
	}
	if err := s.switchTo(d, verb, on); err != nil {
		return err
	}
	if b.killed != nil {
		b.killed()
	}
	return nil
}

func (s *state) switchTo(d sharing.Device, verb string, on bool) error {
	b := s.b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tries++
	if n := len(b.holders[d.ID]); n > 0 {
		b.t.Errorf("%s %s of device %s, which %d hold", verb, s.mode, d.ID, n)
	}
	if b.shown(d.ID).mode != "" {
		b.t.Errorf("%s %s of device %s, which is shown as ready", verb, s.mode, d.ID)
	}
	for other, is := range b.entered[d.ID] {
		if on && is && other != s.mode {
			b.t.Errorf("device %s enters %s and is in %s", d.ID, s.mode, other)
		}
	}
	if err := b.fails[verb+" "+string(s.mode)]; err != nil {
		return err
	}
	b.entered[d.ID][s.mode] = on
	return nil
}
