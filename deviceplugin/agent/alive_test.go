// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/deviceplugin/node"
)

// stalling is a driver whose Devices does not return while the gate is shut.
type stalling struct {
	*drivertest.Driver
	shut   atomic.Bool
	inside chan struct{}
	gate   chan struct{}
}

func (s *stalling) Devices() ([]driver.Device, error) {
	if s.shut.Load() {
		s.inside <- struct{}{}
		<-s.gate
	}
	return s.Driver.Devices()
}

func TestTheLoopIsSilentOnlyWhileACallOfTheDriverDoesNotReturn(t *testing.T) {
	driver := &stalling{Driver: drivertest.New(drivertest.A100(0)), inside: make(chan struct{}), gate: make(chan struct{})}
	m := NewMonitor(driver, offering(node.HealthRules{}, nil), MonitorConfig{Probe: time.Millisecond, Retry: time.Millisecond})
	goesOn := func(while string) {
		t.Helper()
		for beats, last, end := 0, m.looked.Load(), time.Now().Add(10*time.Minute); beats < 10; time.Sleep(time.Millisecond) {
			if now := m.looked.Load(); now != last {
				last, beats = now, beats+1
			}
			if time.Now().After(end) {
				t.Fatalf("it is silent while %s", while)
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	goesOn("the driver answers")
	driver.Unload()
	driver.Miss(errors.New("no library"))
	goesOn("the driver is missing")
	driver.Miss(nil)
	driver.shut.Store(true)
	<-driver.inside
	before := m.looked.Load()
	time.Sleep(50 * time.Millisecond)
	if m.looked.Load() != before {
		t.Error("it claims to work while the driver does not return")
	}
	driver.shut.Store(false)
	close(driver.gate)
	goesOn("the driver is back")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The time of the last look is on the clock that never goes back: its distance from now is the time
// that really passed, whatever the clock of the machine says.
func TestTheLastLookIsOnTheSteadyClock(t *testing.T) {
	m := NewMonitor(drivertest.New(), New(node.Config{}, nil), MonitorConfig{})
	if !m.lastLook().IsZero() {
		t.Error("a loop that has not begun was seen at work")
	}
	m.markAlive()
	at := m.lastLook()
	if at.IsZero() || at == at.Round(0) {
		t.Errorf("the look at %v has no reading of the steady clock", at)
	}
	if err := findHang(at.Add(time.Minute), vitals{looked: at}); err != nil {
		t.Error(err)
	}
	if err := findHang(at.Add(longestSilence+time.Second), vitals{looked: at}); err == nil {
		t.Error("a loop that is silent for too long is well")
	}
}
