// SPDX-License-Identifier: Apache-2.0

// Package drivertest has a driver in memory that behaves like the real one in the ways that
// break programs. Handles become invalid with Close. A lost device answers no call. Events
// reach only those who registered before. A missing driver stays missing until it is
// installed.
package drivertest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/migtest"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// Driver implements driver.Driver. Tests switch, use and reboot its Hardware.
type Driver struct {
	*migtest.Hardware // the devices that can be partitioned

	mu      sync.Mutex
	facts   []node.Facts
	lost    map[int]bool
	damaged map[int]bool
	missing error
	session int // grows with every Close; a handle of an older one is dead
	open    bool
	// released makes Open fail, see Release.
	released bool
	watches  []*watch
	modes    map[sharing.DeviceID]driver.ComputeMode
	licences map[int]node.Licence
	// processes are those on each device.
	processes map[sharing.DeviceID][]driver.Process
}

// New returns a driver with these devices.
func New(facts ...node.Facts) *Driver {
	d := &Driver{Hardware: migtest.New(), facts: slices.Clone(facts), lost: map[int]bool{}, damaged: map[int]bool{}}
	d.Reach = d.reach
	d.buildCards()
	return d
}

// Miss makes Open fail with err; nil repairs it.
func (d *Driver) Miss(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.missing = err
}

// Unload takes the driver away under whoever uses it, as an upgrade does; Miss(nil)
// brings it back.
func (d *Driver) Unload() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.missing, d.open = errors.New("the kernel module is not loaded"), false
	d.watches = nil
	d.session++
}

// Lose takes a device off the bus.
func (d *Driver) Lose(index int) { d.setLost(index, true) }

// Damage makes a device that answers wait for its repair, or ends that.
func (d *Driver) Damage(index int, is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.damaged[index] = is
}

// Licence has a vGPU have a licence; before that its driver says nothing of one.
func (d *Driver) Licence(index int, l node.Licence) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.licences == nil {
		d.licences = map[int]node.Licence{}
	}
	d.licences[index] = l
}

// Restore brings a device back.
func (d *Driver) Restore(index int) { d.setLost(index, false) }

// Swap puts another device into the place of one, as somebody does while the machine is off.
func (d *Driver) Swap(index int, other node.Facts) {
	d.mu.Lock()
	d.facts[index] = other
	d.mu.Unlock()
	d.buildCards()
}

func (d *Driver) setLost(index int, lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost[index] = lost
}

// Raise reports a critical error of a device to whoever watches it. A device that
// is off the bus can report nothing.
func (d *Driver) Raise(index int, xid uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost[index] {
		return
	}
	for _, w := range d.watches {
		if w.devices[index] {
			w.events <- driver.Event{Device: d.facts[index].UUID, XID: xid}
		}
	}
}

// Watched is how many watches are open.
func (d *Driver) Watched() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.watches)
}

// Open implements driver.Driver.
func (d *Driver) Open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.released {
		return driver.ErrReleased
	}
	if d.missing != nil {
		return fmt.Errorf("%w: %w", driver.ErrNoDriver, d.missing)
	}
	d.open = true
	return nil
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open, d.watches = false, nil
	d.session++
	return nil
}

// Release implements driver.Driver.
func (d *Driver) Release(is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.released = is
}

// IsOpen reports whether somebody uses the driver.
func (d *Driver) IsOpen() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// Version implements driver.Driver.
func (d *Driver) Version() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open {
		return "", driver.ErrClosed
	}
	return "580.95.05", nil
}

// Devices implements driver.Driver.
func (d *Driver) Devices() ([]driver.Device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open {
		return nil, driver.ErrClosed
	}
	devices := make([]driver.Device, 0, len(d.facts))
	for i := range d.facts {
		devices = append(devices, &device{driver: d, index: i, session: d.session})
	}
	return devices, nil
}

// Watch implements driver.Driver.
func (d *Driver) Watch(devices []driver.Device) (driver.Watch, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open {
		return nil, driver.ErrClosed
	}
	w := &watch{driver: d, devices: map[int]bool{}, events: make(chan driver.Event, 64), missed: make(chan struct{}, 1)}
	for _, x := range devices {
		if d.lost[x.Index()] {
			return nil, fmt.Errorf("watch device %d: %w", x.Index(), driver.ErrLost)
		}
		w.devices[x.Index()] = true
	}
	d.watches = append(d.watches, w)
	return w, nil
}

type device struct {
	driver  *Driver
	index   int
	session int
}

func (x *device) Index() int { return x.index }

func (x *device) Probe() error {
	if _, err := x.Facts(); err != nil {
		return err
	}
	x.driver.mu.Lock()
	defer x.driver.mu.Unlock()
	if x.driver.damaged[x.index] {
		return fmt.Errorf("%w: reset it", driver.ErrRepair)
	}
	return nil
}

func (x *device) Licence() (node.Licence, error) {
	f, err := x.readFacts()
	if err != nil {
		return node.Licence{}, err
	}
	x.driver.mu.Lock()
	defer x.driver.mu.Unlock()
	l, says := x.driver.licences[x.index]
	if !f.Virtual || !says {
		return node.Licence{}, driver.ErrUnsupported
	}
	return l, nil
}

func (x *device) Facts() (node.Facts, error) {
	f, err := x.readFacts()
	if err == nil && f.MIG.Capable {
		f.MIG.Enabled, f.MIG.Pending = x.driver.Mode(f.UUID)
	}
	return f, err
}

func (x *device) readFacts() (node.Facts, error) {
	d := x.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !d.open || x.session != d.session:
		return node.Facts{}, driver.ErrClosed
	case d.lost[x.index]:
		return node.Facts{}, fmt.Errorf("read device %d: %w", x.index, driver.ErrLost)
	}
	return d.facts[x.index], nil
}

func (x *device) Link(to driver.Device) (sharing.Link, error) {
	mine, err := x.Facts()
	if err != nil {
		return sharing.Link{}, err
	}
	theirs, err := to.Facts()
	if err != nil {
		return sharing.Link{}, err
	}
	if mine.NUMA == theirs.NUMA {
		return sharing.Link{Kind: "node"}, nil
	}
	return sharing.Link{Kind: "sys"}, nil
}

type watch struct {
	driver  *Driver
	devices map[int]bool
	events  chan driver.Event
	missed  chan struct{} // a token when a mode was switched
}

func (w *watch) Wait(atMost time.Duration) (driver.Event, error) {
	timeout := time.NewTimer(atMost)
	defer timeout.Stop()
	select {
	case e := <-w.events:
		return e, nil
	case <-w.missed:
		return driver.Event{}, driver.ErrMissed
	case <-timeout.C:
		return driver.Event{}, driver.ErrQuiet
	}
}

func (w *watch) Close() error {
	w.driver.mu.Lock()
	defer w.driver.mu.Unlock()
	w.driver.watches = slices.DeleteFunc(w.driver.watches, func(x *watch) bool { return x == w })
	return nil
}

// A100 is an 80 GB A100 with its legal partitions, as the driver reports them.
func A100(index int) node.Facts {
	profile := func(name string, mib int64, compute, size, most int, starts ...int) sharing.Profile {
		return sharing.Profile{Name: name, Memory: sharing.MiBs(mib), Compute: compute, Size: size, Max: most, Starts: starts}
	}
	return node.Facts{
		UUID:   sharing.DeviceID(fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", index)),
		Model:  "NVIDIA A100-SXM4-80GB",
		Memory: sharing.MiBs(81920),
		Minor:  index,
		PCI:    fmt.Sprintf("0000:%02x:00.0", 7+8*index),
		NUMA:   index / 4, Compute: 8, CUDA: 13000,
		MIG: node.MIG{Capable: true, Slices: 8, Profiles: []sharing.Profile{
			profile("1g.10gb", 9728, 1, 1, 7, 0, 1, 2, 3, 4, 5, 6),
			profile("2g.20gb", 19968, 2, 2, 3, 0, 2, 4),
			profile("3g.40gb", 40192, 3, 4, 2, 0, 4),
			profile("4g.40gb", 40192, 4, 4, 1, 0),
			profile("7g.80gb", 80896, 7, 8, 1, 0),
			profile("1g.20gb", 19968, 1, 2, 4, 0, 2, 4, 6),
		}},
	}
}

// T4 is a device without partitions.
func T4(index int) node.Facts {
	return node.Facts{
		UUID: sharing.DeviceID(fmt.Sprintf("GPU-44444444-0000-0000-0000-%012d", index)), Model: "Tesla T4",
		Memory: sharing.MiBs(15360), Minor: index, PCI: fmt.Sprintf("0000:%02x:00.0", 0x80+index), NUMA: -1, Compute: 7, CUDA: 13000,
	}
}
