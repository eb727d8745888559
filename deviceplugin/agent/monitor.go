// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// MonitorConfig is how a Monitor works. Zero durations take the defaults.
type MonitorConfig struct {
	Probe time.Duration // between probes; 5 s
	Retry time.Duration // before the driver is opened again; 10 s
	// FailFast makes Run return when the driver cannot be opened the first time.
	FailFast bool
	// Last is told before Run returns an error; nil if nobody is.
	Last interface {
		// Withhold says on the node object that the node takes no pods; it returns when it has, or
		// when ctx ends.
		Withhold(ctx context.Context)
	}
	// Opened is told that the driver was opened afresh: it may be another one. It
	// may be nil.
	Opened func()
}

// withholdTimeout is how long MonitorConfig.Last has before the process ends.
const withholdTimeout = 5 * time.Second

func (c MonitorConfig) withDefaults() MonitorConfig {
	c.Probe = cmp.Or(c.Probe, 5*time.Second)
	c.Retry = cmp.Or(c.Retry, 10*time.Second)
	if c.Opened == nil {
		c.Opened = func() {}
	}
	return c
}

// Monitor owns the driver: it opens it, scans it, listens to it, and sends what it
// finds to the agent. Nothing else does.
type Monitor struct {
	driver  driver.Driver
	agent   *Agent
	cfg     MonitorConfig
	began   time.Time
	rescans chan chan struct{}
	// looked is when the loop was last seen at work, by now and at least 1, else 0: at least once a
	// second while the driver answers, and after each Retry while it cannot be used.
	// When it is silent for longer, a call of the driver has not returned.
	looked atomic.Int64
}

func (m *Monitor) markAlive() { m.looked.Store(max(1, int64(m.now()))) }

// lastLook is looked as a time, zero before the loop has begun. It is on the clock that never goes
// back: a clock of the machine that is set does not make the loop silent, nor hide that it is.
func (m *Monitor) lastLook() time.Time {
	at := m.looked.Load()
	if at == 0 {
		return time.Time{}
	}
	return m.began.Add(time.Duration(at))
}

// NewMonitor returns a monitor that has not started.
func NewMonitor(d driver.Driver, a *Agent, cfg MonitorConfig) *Monitor {
	return &Monitor{driver: d, agent: a, cfg: cfg.withDefaults(), began: time.Now(), rescans: make(chan chan struct{})}
}

// now is the time on a clock that never goes back.
func (m *Monitor) now() node.Moment { return node.Moment(time.Since(m.began)) }

// Run works until ctx ends. A driver that cannot be used is tried again for ever,
// unless FailFast is set and it never worked.
func (m *Monitor) Run(ctx context.Context) error {
	for first := true; ctx.Err() == nil; first = false {
		m.markAlive()
		m.stayAway(ctx)
		err := m.runSession(ctx)
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			continue // reopen at once: devices were lost or came back
		}
		m.agent.Send(node.DriverFailed{Why: err.Error()})
		m.comeBack()
		if first && m.cfg.FailFast {
			m.withholdNode(ctx)
			return fmt.Errorf("start the driver: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(m.cfg.Retry):
		}
	}
	return m.driver.Close()
}

// releaseLook is how often is looked whether the driver may be used again.
const releaseLook = time.Second

// stayAway keeps this process from the driver for as long as an administrator wants that.
func (m *Monitor) stayAway(ctx context.Context) {
	if !m.agent.State().MayReleaseDriver() {
		return
	}
	klog.InfoS("the driver is released")
	m.driver.Release(true)
	m.agent.Send(node.DriverGone{Is: true})
	tick := time.NewTicker(releaseLook)
	defer tick.Stop()
	for ctx.Err() == nil && m.agent.State().IsDriverWanted() {
		m.markAlive()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	m.driver.Release(false)
}

// comeBack ends the time of a released driver, as soon as it is known how its devices are.
func (m *Monitor) comeBack() {
	if m.agent.State().IsDriverGone() {
		m.agent.Send(node.DriverGone{})
		klog.InfoS("the driver is used again")
	}
}

// withholdNode says on the node that it takes no pods, because the process ends.
func (m *Monitor) withholdNode(ctx context.Context) {
	if m.cfg.Last == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, withholdTimeout)
	defer cancel()
	m.cfg.Last.Withhold(ctx)
}

// rescanDevices reads every device again, because something other than the driver changed
// one, and returns when the state has the result. While the driver is not open it
// waits until ctx ends; opening it reads the devices anyway.
func (m *Monitor) rescanDevices(ctx context.Context) {
	done := make(chan struct{})
	select {
	case m.rescans <- done:
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// serveRescan serves one rescan, if somebody waits for it.
func (m *Monitor) serveRescan() {
	select {
	case done := <-m.rescans:
		defer close(done)
		found, err := driver.Scan(m.driver)
		if err != nil {
			klog.ErrorS(err, "a device that was changed cannot be read again; the next look at the driver will")
			return
		}
		m.agent.Send(node.Scanned{Devices: found})
	default:
	}
}

// runSession uses the driver from opening to closing. It returns nil when the driver
// should be opened afresh.
func (m *Monitor) runSession(ctx context.Context) error {
	if err := m.driver.Open(); err != nil {
		return err
	}
	defer func() {
		if err := m.driver.Close(); err != nil {
			klog.ErrorS(err, "closing the driver")
		}
	}()
	devices, err := m.driver.Devices()
	if err != nil {
		return fmt.Errorf("list devices: %w", err)
	}
	found, err := driver.Scan(m.driver)
	if err != nil && len(found) == 0 {
		return err
	}
	if err != nil {
		klog.ErrorS(err, "some devices do not answer", "answering", len(found), "listed", len(devices))
	}
	m.cfg.Opened()
	m.agent.Send(node.Scanned{Devices: found, Unread: len(devices) - len(found)})
	m.comeBack()
	here := newSessionDevices(devices, found)
	watch, err := m.driver.Watch(here.answeringDevices())
	if errors.Is(err, driver.ErrLost) {
		return nil // lost since the scan: look again
	}
	if err != nil {
		return fmt.Errorf("watch devices: %w", err)
	}
	defer func() { _ = watch.Close() }()
	return m.watchDevices(ctx, watch, here)
}

// watchDevices takes in critical errors and probes until ctx ends, the driver breaks, or
// opening it afresh may show something new.
func (m *Monitor) watchDevices(ctx context.Context, watch driver.Watch, here *sessionDevices) error {
	m.probeDevices(here)
	opened := time.Now()
	next := opened.Add(m.cfg.Probe)
	for ctx.Err() == nil {
		m.markAlive()
		if m.agent.State().MayReleaseDriver() {
			return nil
		}
		m.serveRescan()
		event, err := watch.Wait(min(time.Until(next), time.Second))
		switch {
		case err == nil:
			klog.InfoS("a device reported a critical error", "device", event.Device, "xid", event.XID)
			m.agent.Send(node.Faulted{Device: event.Device, XID: event.XID, At: m.now()})
		case errors.Is(err, driver.ErrQuiet):
		case errors.Is(err, driver.ErrLost):
			next = time.Now()
		case errors.Is(err, driver.ErrMissed):
			klog.InfoS("nobody listened to the devices while the mode of one was switched; looking at all of them")
			next = time.Now()
		default:
			return fmt.Errorf("wait for events: %w", err)
		}
		if time.Now().Before(next) {
			continue
		}
		m.probeDevices(here)
		if m.isStale(here) && time.Since(opened) >= m.cfg.Retry {
			return nil
		}
		next = time.Now().Add(m.cfg.Probe)
	}
	return nil
}

// isStale reports that opening the driver afresh may show something new: a device
// does not answer, none is there yet, or their number changed.
func (m *Monitor) isStale(here *sessionDevices) bool {
	if here.listed == 0 || here.listed != len(here.order) || len(here.silent) > 0 {
		return true
	}
	now, err := m.driver.Devices()
	return err != nil || len(now) != here.listed
}

func (m *Monitor) probeDevices(here *sessionDevices) {
	for _, id := range here.order {
		if here.silent[id] {
			continue
		}
		err := here.handle[id].Probe()
		m.markAlive()
		if err != nil {
			if !errors.Is(err, driver.ErrRepair) { // one that waits for its repair is asked again
				here.silent[id] = true
			}
			m.agent.Send(node.Silent{Device: id, Why: err.Error()})
			continue
		}
		m.agent.Send(node.Answered{Device: id, At: m.now()})
		m.readLicence(id, here.handle[id])
	}
}

// readLicence reads the licence of a vGPU. Where it cannot be read, what was read last holds.
func (m *Monitor) readLicence(id sharing.DeviceID, d driver.Device) {
	if f, _ := m.agent.State().Facts(id); !f.Virtual {
		return
	}
	licence, err := d.Licence()
	m.markAlive()
	switch {
	case err == nil:
		m.agent.Send(node.LicenceRead{Device: id, Licence: licence, Now: time.Now().Unix()})
	case !errors.Is(err, driver.ErrUnsupported):
		klog.V(2).InfoS("the licence of a vGPU cannot be read", "device", id, "err", err)
	}
}
