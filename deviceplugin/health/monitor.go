// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/discovery"
	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// Config is how a Monitor works. Zero durations take the defaults.
type Config struct {
	Ignored   []uint64      // critical errors that do not count
	IgnoreAll bool          // none of them counts
	Probe     time.Duration // between probes; 5 s
	Quiet     time.Duration // see the rule of the package; 60 s
	Retry     time.Duration // before the driver is opened again; 10 s
	// FailFast makes Run return when the driver cannot be opened the first time.
	FailFast bool
	// Trouble is told, once per change, that the driver cannot be used (an
	// error) or can be used again (nil). It may be nil.
	Trouble func(error)
	// Opened is told that the driver was opened afresh: it may be another one. It
	// may be nil.
	Opened func()
	// Changed is told about every device that broke (why) or came back (""). It
	// may be nil.
	Changed func(id sharing.DeviceID, why string)
	// Alive is told again and again while Run works: at least once a second while
	// the driver answers, and after each Retry while it cannot be used. When it is
	// silent for longer, a call of the driver has not returned. It may be nil.
	Alive func()
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	set(&c.Probe, 5*time.Second)
	set(&c.Quiet, time.Minute)
	set(&c.Retry, 10*time.Second)
	if c.Trouble == nil {
		c.Trouble = func(error) {}
	}
	if c.Opened == nil {
		c.Opened = func() {}
	}
	if c.Changed == nil {
		c.Changed = func(sharing.DeviceID, string) {}
	}
	if c.Alive == nil {
		c.Alive = func() {}
	}
	return c
}

// Monitor owns the driver: it opens it, scans it, listens to it, and writes what
// it finds on the board. Nothing else writes there.
type Monitor struct {
	driver driver.Driver
	board  *discovery.Board
	cfg    Config
	ledger *ledger

	known   map[sharing.DeviceID]bool // found by any scan
	trouble string                    // what Trouble was told last
	told    map[sharing.DeviceID]string
	rescans chan chan struct{}
}

// New returns a monitor that has not started.
func New(driver driver.Driver, board *discovery.Board, cfg Config) *Monitor {
	cfg = cfg.withDefaults()
	return &Monitor{
		driver: driver, board: board, cfg: cfg,
		ledger: newLedger(cfg), known: map[sharing.DeviceID]bool{}, told: map[sharing.DeviceID]string{},
		rescans: make(chan chan struct{}),
	}
}

// Run works until ctx ends. A driver that cannot be used is tried again for ever,
// unless FailFast is set and it never worked.
func (m *Monitor) Run(ctx context.Context) error {
	for first := true; ctx.Err() == nil; first = false {
		m.cfg.Alive()
		err := m.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			continue // reopen at once: devices were lost or came back
		}
		m.report(err)
		m.blind(err)
		if first && m.cfg.FailFast {
			return fmt.Errorf("start the driver: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(m.cfg.Retry):
		}
	}
	return m.driver.Close()
}

// Rescan reads every device again, because something other than the driver changed
// one, and returns when the board has the result. While the driver is not open it
// waits until ctx ends; opening it reads the devices anyway.
func (m *Monitor) Rescan(ctx context.Context) {
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

// rescan serves one Rescan, if somebody waits for it.
func (m *Monitor) rescan() {
	select {
	case done := <-m.rescans:
		defer close(done)
		found, err := discovery.Scan(m.driver)
		if err != nil {
			klog.ErrorS(err, "a device that was changed cannot be read again; the next look at the driver will")
			return
		}
		m.board.SetFound(found)
	default:
	}
}

// report tells about trouble with the driver when it changed.
func (m *Monitor) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == m.trouble {
		return
	}
	m.trouble = text
	m.cfg.Trouble(err)
}

// blind takes in that nothing is known about any device: a driver that stopped
// working says no more that its devices work.
func (m *Monitor) blind(err error) {
	for id := range m.known {
		m.ledger.probed(id, err, time.Now())
	}
	m.publish()
}

// session uses the driver from opening to closing. It returns nil when the driver
// should be opened afresh.
func (m *Monitor) session(ctx context.Context) error {
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
	found, err := discovery.Scan(m.driver)
	if err != nil && len(found) == 0 {
		return err
	}
	if err != nil {
		klog.ErrorS(err, "some devices do not answer", "answering", len(found), "listed", len(devices))
	}
	m.report(nil)
	m.cfg.Opened()
	m.board.SetFound(found)
	m.missed(found)
	here := newRound(devices, found)
	watch, err := m.driver.Watch(here.answering())
	if errors.Is(err, driver.ErrLost) {
		return nil // lost since the scan: look again
	}
	if err != nil {
		return fmt.Errorf("watch devices: %w", err)
	}
	defer func() { _ = watch.Close() }()
	return m.listen(ctx, watch, here)
}

// missed takes in devices of earlier scans that this one did not find.
func (m *Monitor) missed(found []discovery.Found) {
	answering := map[sharing.DeviceID]bool{}
	for i := range found {
		answering[found[i].UUID] = true
		m.known[found[i].UUID] = true
	}
	for id := range m.known {
		if !answering[id] {
			m.ledger.probed(id, fmt.Errorf("the driver does not find it: %w", driver.ErrLost), time.Now())
		}
	}
	m.publish()
}

// listen takes in events and probes until ctx ends, the driver breaks, or opening
// it afresh may show something new.
func (m *Monitor) listen(ctx context.Context, watch driver.Watch, here *round) error {
	m.probe(here)
	opened := time.Now()
	next := opened.Add(m.cfg.Probe)
	for ctx.Err() == nil {
		m.cfg.Alive()
		m.rescan()
		event, err := watch.Wait(min(time.Until(next), time.Second))
		switch {
		case err == nil:
			m.takeIn(event)
		case errors.Is(err, driver.ErrQuiet):
		case errors.Is(err, driver.ErrLost):
			next = time.Now()
		default:
			return fmt.Errorf("wait for events: %w", err)
		}
		if time.Now().Before(next) {
			continue
		}
		m.probe(here)
		if m.stale(here) && time.Since(opened) >= m.cfg.Retry {
			return nil
		}
		next = time.Now().Add(m.cfg.Probe)
	}
	return nil
}

// stale reports that opening the driver afresh may show something new: a device
// does not answer, none is there yet, or their number changed.
func (m *Monitor) stale(here *round) bool {
	if here.listed == 0 || here.listed != len(here.order) || len(here.silent) > 0 {
		return true
	}
	now, err := m.driver.Devices()
	return err != nil || len(now) != here.listed
}

// takeIn takes in one event.
func (m *Monitor) takeIn(e driver.Event) {
	if !m.ledger.fault(e.Device, e.XID, time.Now()) {
		klog.InfoS("a device reported an application error, which says nothing about the device", "device", e.Device, "xid", e.XID)
		return
	}
	klog.InfoS("a device reported a critical error", "device", e.Device, "xid", e.XID)
	m.publish()
}

// probe asks every device for a sign of life.
func (m *Monitor) probe(here *round) {
	for _, id := range here.order {
		if here.silent[id] {
			continue
		}
		err := here.handle[id].Probe()
		m.cfg.Alive()
		m.ledger.probed(id, err, time.Now())
		if err != nil {
			here.silent[id] = true
		}
	}
	m.publish()
}

// publish writes the board and tells about changes.
func (m *Monitor) publish() {
	sick := m.ledger.sick()
	m.board.SetSick(sick)
	for id, why := range sick {
		if m.told[id] == "" {
			m.cfg.Changed(id, why)
		}
	}
	for id := range m.told {
		if _, still := sick[id]; !still {
			m.cfg.Changed(id, "")
		}
	}
	m.told = maps.Clone(sick)
}
