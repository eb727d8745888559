// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// everything offers every device as hami-core.
type everything struct{}

func (everything) Offer(*node.Facts) node.Offer {
	return node.Offer{Mode: sharing.HAMiCore, MaxShares: 1}
}

// offering is an agent that offers every device.
func offering(rules node.HealthRules, l listener) *Agent {
	a := New(node.Config{Node: "n", Health: rules}, l)
	a.Send(node.Configured{Settings: node.Settings{Offers: everything{}}})
	return a
}

// running is a monitor at work over a fake driver.
type running struct {
	t      *testing.T
	driver *drivertest.Driver
	agent  *Agent
	ended  chan error
	news   chan string
}

// Tell implements listener.
func (r *running) Tell(_, _ node.State, notices []node.Notice) {
	for _, n := range notices {
		r.news <- map[node.NoticeKind]string{
			node.PartFailed: "trouble", node.PartWorks: "fine", node.DeviceBroke: "broken", node.DeviceWorks: "healthy",
		}[n.Kind]
	}
}

func run(t *testing.T, driver *drivertest.Driver, rules node.HealthRules, cfg MonitorConfig) *running {
	t.Helper()
	r := &running{t: t, driver: driver, ended: make(chan error, 1), news: make(chan string, 100)}
	rules.Quiet = node.Moment(20 * time.Millisecond)
	r.agent = offering(rules, r)
	cfg.Probe, cfg.Retry = 2*time.Millisecond, 4*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	go func() { r.ended <- NewMonitor(driver, r.agent, cfg).Run(ctx) }()
	t.Cleanup(cancel)
	return r
}

func TestDevicesAreLookedAtWhenNobodyListenedForAWhile(t *testing.T) {
	gpus := drivertest.New(drivertest.A100(0), drivertest.T4(1))
	a := offering(node.HealthRules{Quiet: node.Moment(time.Hour)}, nil)
	m := NewMonitor(gpus, a, MonitorConfig{Probe: time.Hour, Retry: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = m.Run(ctx) }()
	r := &running{t: t, agent: a}
	r.healthy(2)
	for gpus.Watched() == 0 {
		time.Sleep(time.Millisecond)
	}
	gpus.Raise(1, 79) // what is heard is heard after the first look
	r.healthy(1)
	// Nothing tells of this, since the driver is not listened to while a mode is switched.
	gpus.Damage(0, true)
	if err := gpus.SetMIGMode(drivertest.A100(0).UUID, true); !errors.Is(err, driver.ErrResetRequired) {
		t.Fatal(err)
	}
	r.healthy(0)
	if c, _ := a.State().Condition(drivertest.A100(0).UUID); !strings.Contains(c.Detail, driver.ErrRepair.Error()) {
		t.Errorf("the device is %v, want what a look at it finds", c)
	}
}

// expect awaits the next piece of news.
func (r *running) expect(want string) {
	r.t.Helper()
	select {
	case got := <-r.news:
		if got != want {
			r.t.Fatalf("the next news is %q, want %q", got, want)
		}
	case <-time.After(10 * time.Minute):
		r.t.Fatalf("no news, want %q", want)
	}
}

// expectBoth awaits two pieces of news in any order.
func (r *running) expectBoth(a, b string) {
	r.t.Helper()
	select {
	case first := <-r.news:
		if first == b {
			a, b = b, a
		}
		if first != a {
			r.t.Fatalf("the next news is %q, want %q or %q", first, a, b)
		}
	case <-time.After(10 * time.Minute):
		r.t.Fatalf("no news, want %q and %q", a, b)
	}
	r.expect(b)
}

// healthy awaits how many devices are published as healthy.
func (r *running) healthy(want int) {
	r.t.Helper()
	changes, stop := r.agent.Changes()
	defer stop()
	deadline := time.After(10 * time.Minute)
	for {
		inv := r.agent.State().Inventory()
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
	r.until("somebody listens", func() bool { return r.driver.Watched() > 0 })
}

func TestACriticalErrorBreaksADeviceUntilItWasQuiet(t *testing.T) {
	r := run(t, drivertest.New(drivertest.A100(0), drivertest.A100(1)), node.HealthRules{Ignored: node.ApplicationXIDs()}, MonitorConfig{})
	r.listening()
	r.driver.Raise(1, 31) // an application's
	r.driver.Raise(1, 79)
	r.expect("broken")
	r.healthy(1)
	r.expect("healthy")
	r.healthy(2)
}

func TestALostDeviceComesBackWithoutARestart(t *testing.T) {
	r := run(t, drivertest.New(drivertest.A100(0), drivertest.A100(1)), node.HealthRules{}, MonitorConfig{})
	r.healthy(2)
	r.driver.Lose(0)
	r.expect("broken")
	r.healthy(1)
	if inv := r.agent.State().Inventory(); len(inv.Devices) != 2 {
		t.Fatalf("a lost device vanished: %+v", inv.Devices)
	}
	r.driver.Restore(0)
	r.expect("healthy")
	r.healthy(2)
	r.listening()
	r.driver.Raise(0, 79) // it is listened to again
	r.expect("broken")
}

func TestADeviceThatWaitsForItsRepairIsBrokenHoweverLongItIsQuiet(t *testing.T) {
	r := run(t, drivertest.New(drivertest.A100(0), drivertest.A100(1)), node.HealthRules{}, MonitorConfig{})
	r.listening()
	r.driver.Damage(1, true)
	r.driver.Raise(1, 95)
	r.expect("broken")
	r.healthy(1)
	time.Sleep(100 * time.Millisecond) // it is quiet for much longer than the rules want
	r.driver.Lose(0)                   // the driver is opened anew for the other one
	r.expect("broken")
	r.healthy(0)
	r.driver.Restore(0)
	r.expect("healthy")
	r.healthy(1)
	r.driver.Damage(1, false)
	r.expect("healthy")
	r.healthy(2)
}

func TestAMissingDriverIsReportedOnceAndAwaited(t *testing.T) {
	driver := drivertest.New(drivertest.A100(0))
	driver.Miss(errors.New("libnvidia-ml.so.1 not found"))
	r := run(t, driver, node.HealthRules{}, MonitorConfig{})
	r.expect("trouble")
	if r.agent.State().Scanned() {
		t.Error("the board claims to know the devices")
	}
	driver.Miss(nil)
	r.expect("fine")
	r.healthy(1)
}

func TestADriverThatIsUnloadedTakesItsDevicesAwayUntilItIsBack(t *testing.T) {
	r := run(t, drivertest.New(drivertest.A100(0)), node.HealthRules{}, MonitorConfig{})
	r.listening()
	r.driver.Unload()
	r.expectBoth("broken", "trouble") // whether the device is asked first, or the driver for the number of devices
	r.healthy(0)
	r.driver.Miss(nil)
	r.expect("fine")
	r.expect("healthy")
	r.healthy(1)
}

func TestAMissingDriverEndsTheProgramOnlyWhenAsked(t *testing.T) {
	gpus := drivertest.New()
	gpus.Miss(errors.New("no library"))
	said := &withheld{}
	r := run(t, gpus, node.HealthRules{}, MonitorConfig{FailFast: true, Last: said})
	select {
	case err := <-r.ended:
		if !errors.Is(err, driver.ErrNoDriver) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(10 * time.Minute):
		t.Error("it goes on")
	}
	if !said.is {
		t.Error("the node still says that it takes pods")
	}
}

// withheld notes that a node was to say that it takes no pods.
type withheld struct{ is bool }

func (w *withheld) Withhold(context.Context) { w.is = true }

func TestANodeWithoutDevicesIsKnownToHaveNone(t *testing.T) {
	r := run(t, drivertest.New(), node.HealthRules{}, MonitorConfig{})
	changes, stop := r.agent.Changes()
	defer stop()
	select {
	case <-changes:
	case <-time.After(10 * time.Minute):
		t.Fatal("the empty scan is not on the board")
	}
	if s := r.agent.State(); !s.Scanned() || len(s.Inventory().Devices) != 0 {
		t.Errorf("inventory %+v", s.Inventory())
	}
}

// Whoever replaces the driver must find it unused, however long that takes, and whoever watches the
// device plugin must not take it for one that hangs.
func TestNobodyUsesADriverThatIsReleased(t *testing.T) {
	gpus := drivertest.New(drivertest.A100(0))
	a := offering(node.HealthRules{}, nil)
	m := NewMonitor(gpus, a, MonitorConfig{Probe: time.Millisecond, Retry: time.Millisecond})
	go func() { _ = m.Run(t.Context()) }()
	r := &running{t: t, agent: a}
	r.healthy(1)
	for range 3 {
		a.Send(node.DriverWanted{Is: true})
		r.until("the driver is let go", func() bool {
			c, _ := a.State().Condition(drivertest.A100(0).UUID)
			return c.Detail == wire.ReasonReleased
		})
		before := m.lastLook()
		r.until("the loop is still at work", func() bool { return m.lastLook().After(before) })
		if err := gpus.Open(); !errors.Is(err, driver.ErrReleased) || gpus.IsOpen() {
			t.Fatalf("the driver can be used while it is released: %v", err)
		}
		a.Send(node.DriverWanted{})
		r.healthy(1)
		if !gpus.IsOpen() {
			t.Fatal("the device is offered, and the driver is not in use")
		}
	}
}

func (r *running) until(what string, isSo func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if isSo() {
			return
		}
	}
	r.t.Fatalf("waited for ever: %s", what)
}
