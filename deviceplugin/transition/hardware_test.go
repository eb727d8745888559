// SPDX-License-Identifier: Apache-2.0

package transition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"deviceshare/deviceplugin/lock"
	"deviceshare/sharing"
	"deviceshare/sharing/nodeapi"
)

var errPassing = errors.New("the driver is just being opened")

// bench is a node in memory: its devices, who holds them, and what a mover did.
type bench struct {
	t     *testing.T
	locks lock.Keyed
	mover *Mover
	stop  func()

	mu      sync.Mutex
	wanted  map[sharing.DeviceID]sharing.Mode
	entered map[sharing.DeviceID]map[sharing.Mode]bool
	holders map[sharing.DeviceID][]Holder
	shown   map[sharing.DeviceID]Standing
	fails   map[string]error // step of a switcher -> what it answers
	slow    chan struct{}    // when set, Enter waits for it
	told    []string
	tries   int
	asked   int    // how often the devices were asked for
	killed  func() // when set, told about every change of hardware
	changes chan struct{}
}

func newBench(t *testing.T, modes map[sharing.DeviceID]sharing.Mode) *bench {
	b := &bench{
		t: t, wanted: modes, entered: map[sharing.DeviceID]map[sharing.Mode]bool{}, holders: map[sharing.DeviceID][]Holder{},
		shown: map[sharing.DeviceID]Standing{}, fails: map[string]error{}, changes: make(chan struct{}, 1),
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
	case <-b.mover.Looked():
	case <-time.After(time.Minute):
		b.t.Fatal("the mover never looked")
	}
}

func (b *bench) startUnlooked() {
	b.mover = New(Config{
		Switchers: []nodeapi.Switcher{&state{b, mig}, &state{b, mps}},
		Devices:   b.devices, Holders: b.held, Locks: &b.locks, Changes: b.changes,
		Show: func(id sharing.DeviceID, s Standing) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.shown[id] = s
			poke(b.changes) // as the board does
		},
		Observe: Observer{
			Moved: func(d sharing.Device, _ time.Duration) { b.tell("%s is in %s", d.ID, d.Mode) },
			Waiting: func(d sharing.Device, why string, holders []Holder) {
				b.tell("%s waits for %d: %s", d.ID, len(holders), why)
			},
			Failed: func(d sharing.Device, err error, fresh bool) {
				if fresh {
					b.tell("%s failed: %v", d.ID, err)
				}
			},
		},
		Passing: func(err error) bool { return errors.Is(err, errPassing) },
		First:   time.Millisecond, Most: 5 * time.Millisecond, Again: 10 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = b.mover.Run(ctx) }()
	b.stop = func() { cancel(); <-ended }
	b.t.Cleanup(b.stop)
}

func (b *bench) devices() []sharing.Device {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	var out []sharing.Device
	for id, m := range b.wanted {
		out = append(out, sharing.Device{ID: id, Mode: m, Healthy: b.shown[id].Mode == m})
	}
	return out
}

func (b *bench) held(id sharing.DeviceID) []Holder {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Holder{}, b.holders[id]...)
}

func (b *bench) tell(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, fmt.Sprintf(format, args...))
}

// want edits the configuration.
func (b *bench) want(id sharing.DeviceID, m sharing.Mode) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wanted[id] = m
	poke(b.changes)
}

// hold is a container that starts; false if the device takes none.
func (b *bench) hold(id sharing.DeviceID, m sharing.Mode, pod string) bool {
	unlock := b.locks.Lock(string(id))
	defer unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shown[id].Mode != m || b.wanted[id] != m {
		return false
	}
	b.holders[id] = append(b.holders[id], Holder{Owner: sharing.Owner(pod), Pod: pod, Mode: m})
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
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		ok := done()
		b.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("still waiting for %s; shown %+v, told %q", what, b.shown, b.told)
		}
	}
}

func (b *bench) ready(id sharing.DeviceID, m sharing.Mode) func() bool {
	return func() bool { return b.shown[id] == Standing{Mode: m} && b.only(id, m) }
}

// only reports that the device is in the state of this mode and of no other.
func (b *bench) only(id sharing.DeviceID, m sharing.Mode) bool {
	for _, x := range []sharing.Mode{mig, mps} {
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

func (s *state) Prepare(context.Context, nodeapi.Claim) (nodeapi.Injection, error) {
	return nodeapi.Injection{}, errors.New("not asked")
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
	if b.shown[d.ID].Mode != "" {
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
