// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"testing"
	"time"

	"deviceshare/deviceplugin/discovery"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/sharing"
)

func TestTheRule(t *testing.T) {
	start, quiet := time.Unix(1000, 0), time.Minute
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	cases := map[string]struct {
		state State
		sick  bool
	}{
		"new devices are healthy":                  {State{}, false},
		"a critical error breaks at once":          {State{}.Faulted(79, at(0)), true},
		"an answer soon after does not heal":       {State{}.Faulted(79, at(0)).Answered(at(59), quiet), true},
		"an answer after the quiet time heals":     {State{}.Faulted(79, at(0)).Answered(at(60), quiet), false},
		"another error starts the quiet time anew": {State{}.Faulted(79, at(0)).Faulted(48, at(50)).Answered(at(70), quiet), true},
		"silence breaks at once":                   {State{}.Silent(driver.ErrLost), true},
		"the first answer heals silence":           {State{}.Silent(driver.ErrLost).Answered(at(1), quiet), false},
		"silence after an error waits for both":    {State{}.Faulted(79, at(0)).Silent(driver.ErrLost).Answered(at(10), quiet), true},
		"silence outlasts the quiet time":          {State{}.Faulted(79, at(0)).Answered(at(60), quiet).Silent(driver.ErrLost), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.state.Why() != ""; got != tc.sick {
				t.Errorf("broken: %v (%s), want %v", got, tc.state.Why(), tc.sick)
			}
		})
	}
}

func TestErrorsOfApplicationsDoNotCount(t *testing.T) {
	now := time.Unix(1000, 0)
	l := newLedger(Config{Ignored: ApplicationXIDs()})
	l.probed("GPU-a", nil, now)
	for _, xid := range ApplicationXIDs() {
		if l.fault("GPU-a", xid, now) {
			t.Errorf("XID %d counts", xid)
		}
	}
	if !l.fault("GPU-a", 79, now) || len(l.sick()) != 1 {
		t.Error("XID 79 does not count")
	}
	all := newLedger(Config{IgnoreAll: true})
	if all.fault("GPU-a", 79, now) {
		t.Error("XID 79 counts although all are ignored")
	}
}

func TestAnErrorOfAnUnknownDeviceBreaksAll(t *testing.T) {
	l := newLedger(Config{})
	l.probed("GPU-a", nil, time.Unix(0, 0))
	l.probed("GPU-b", nil, time.Unix(0, 0))
	l.fault("", 79, time.Unix(1, 0))
	if got := l.sick(); len(got) != 2 {
		t.Errorf("broken are %v", got)
	}
}

// running is a monitor at work over a fake driver.
type running struct {
	t      *testing.T
	driver *drivertest.Driver
	board  *discovery.Board
	ended  chan error
	news   chan string
}

func run(t *testing.T, driver *drivertest.Driver, cfg Config) *running {
	t.Helper()
	r := &running{t: t, driver: driver, ended: make(chan error, 1), news: make(chan string, 100)}
	r.board = discovery.NewBoard("n", discovery.Settings{Device: func(*discovery.Found) discovery.Offer {
		return discovery.Offer{Mode: sharing.HAMiCore, MaxShares: 1}
	}})
	cfg.Probe, cfg.Retry = 2*time.Millisecond, 4*time.Millisecond
	if cfg.Quiet == 0 {
		cfg.Quiet = 20 * time.Millisecond
	}
	cfg.Trouble = func(err error) {
		if err != nil {
			r.news <- "trouble"
			return
		}
		r.news <- "fine"
	}
	cfg.Changed = func(id sharing.DeviceID, why string) {
		if why == "" {
			r.news <- "healthy"
			return
		}
		r.news <- "broken"
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { r.ended <- New(driver, r.board, cfg).Run(ctx) }()
	t.Cleanup(cancel)
	return r
}

// expect awaits the next piece of news.
func (r *running) expect(want string) {
	r.t.Helper()
	select {
	case got := <-r.news:
		if got != want {
			r.t.Fatalf("the next news is %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		r.t.Fatalf("no news, want %q", want)
	}
}

// healthy awaits how many devices are published as healthy.
func (r *running) healthy(want int) {
	r.t.Helper()
	changes, stop := r.board.Changes()
	defer stop()
	deadline := time.After(time.Minute)
	for {
		inv, _ := r.board.Inventory()
		n := 0
		for _, d := range inv.Devices {
			if d.Healthy {
				n++
			}
		}
		if n == want {
			return
		}
		select {
		case <-changes:
		case <-deadline:
			r.t.Fatalf("%d devices are healthy, want %d", n, want)
		}
	}
}

// listening awaits that events are collected.
func (r *running) listening() {
	r.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for r.driver.Watched() == 0 {
		if time.Now().After(deadline) {
			r.t.Fatal("nobody listens")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestACriticalErrorBreaksADeviceUntilItWasQuiet(t *testing.T) {
	r := run(t, drivertest.New(drivertest.A100(0), drivertest.A100(1)), Config{Ignored: ApplicationXIDs()})
	r.listening()
	r.driver.Raise(1, 31) // an application's
	r.driver.Raise(1, 79)
	r.expect("broken")
	r.healthy(1)
	r.expect("healthy")
	r.healthy(2)
}

func TestALostDeviceComesBackWithoutARestart(t *testing.T) {
	r := run(t, drivertest.New(drivertest.A100(0), drivertest.A100(1)), Config{})
	r.healthy(2)
	r.driver.Lose(0)
	r.expect("broken")
	r.healthy(1)
	if inv, _ := r.board.Inventory(); len(inv.Devices) != 2 {
		t.Fatalf("a lost device vanished: %+v", inv.Devices)
	}
	r.driver.Restore(0)
	r.expect("healthy")
	r.healthy(2)
	r.listening()
	r.driver.Raise(0, 79) // it is listened to again
	r.expect("broken")
}

func TestAMissingDriverIsReportedOnceAndAwaited(t *testing.T) {
	driver := drivertest.New(drivertest.A100(0))
	driver.Miss(errors.New("libnvidia-ml.so.1 not found"))
	r := run(t, driver, Config{})
	r.expect("trouble")
	if _, ready := r.board.Inventory(); ready {
		t.Error("the board claims to know the devices")
	}
	driver.Miss(nil)
	r.expect("fine")
	r.healthy(1)
}

func TestADriverThatIsUnloadedTakesItsDevicesAwayUntilItIsBack(t *testing.T) {
	r := run(t, drivertest.New(drivertest.A100(0)), Config{})
	r.listening()
	r.driver.Unload()
	r.expect("broken")
	r.healthy(0)
	r.expect("trouble")
	r.driver.Miss(nil)
	r.expect("fine")
	r.expect("healthy")
	r.healthy(1)
}

func TestAMissingDriverEndsTheProgramOnlyWhenAsked(t *testing.T) {
	gpus := drivertest.New()
	gpus.Miss(errors.New("no library"))
	r := run(t, gpus, Config{FailFast: true})
	select {
	case err := <-r.ended:
		if !errors.Is(err, driver.ErrNoDriver) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}

func TestANodeWithoutDevicesIsKnownToHaveNone(t *testing.T) {
	r := run(t, drivertest.New(), Config{})
	changes, stop := r.board.Changes()
	defer stop()
	select {
	case <-changes:
	case <-time.After(time.Minute):
		t.Fatal("the empty scan is not on the board")
	}
	if inv, ready := r.board.Inventory(); !ready || len(inv.Devices) != 0 {
		t.Errorf("inventory %+v, %v", inv, ready)
	}
}
