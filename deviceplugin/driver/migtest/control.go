// SPDX-License-Identifier: Apache-2.0

package migtest

import (
	"fmt"
	"slices"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/sharing"
)

// on does something to a card of a test; an unknown one is the test's mistake.
func (h *Hardware) on(id sharing.DeviceID, do func(c *card)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.cards, func(c *card) bool { return c.ID == id })
	if i < 0 {
		panic(fmt.Sprintf("there is no card %s", id))
	}
	do(h.cards[i])
}

// Switch sets the mode as after a switch and a reset.
func (h *Hardware) Switch(id sharing.DeviceID, on bool) {
	h.on(id, func(c *card) { c.current, c.pending, c.instances = on, on, nil })
}

// Mode is the mode of a card, whether or not it can be reached.
func (h *Hardware) Mode(id sharing.DeviceID) (current, pending bool) {
	h.on(id, func(c *card) { current, pending = c.current, c.pending })
	return current, pending
}

// Reset resets a card: what was pending is so now, and instances are lost.
func (h *Hardware) Reset(id sharing.DeviceID) {
	h.on(id, func(c *card) { c.current, c.instances = c.pending, nil })
}

// Reboot restarts the machine: instances and processes are gone, the mode stays
// only where the card keeps it.
func (h *Hardware) Reboot() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.boots++
	for _, c := range h.cards {
		c.instances, c.users, c.lingers = nil, map[int][]int{}, 0
		c.pending = c.pending && !c.Resetless
		c.current = c.pending
	}
}

// Use lets processes run on a GPU instance; none ends those that do.
func (h *Hardware) Use(id sharing.DeviceID, gi int, pids ...int) {
	h.on(id, func(c *card) {
		if delete(c.users, gi); len(pids) > 0 {
			c.users[gi] = pids
		}
	})
}

// UseWhole lets processes use a card that is not partitioned.
func (h *Hardware) UseWhole(id sharing.DeviceID, pids ...int) { h.Use(id, device, pids...) }

// Split gives a GPU instance two compute instances that share it, as somebody may
// by hand.
func (h *Hardware) Split(id sharing.DeviceID, gi int) {
	h.on(id, func(c *card) {
		if in, err := c.instance(gi); err == nil {
			in.Compute = []driver.ComputeInstance{{CI: 0, UUID: h.uuid(id, gi, 0)}, {CI: 1, UUID: h.uuid(id, gi, 1)}}
		}
	})
}

// Linger lets the card answer success n times when a GPU instance is destroyed
// and keep it, as drivers have.
func (h *Hardware) Linger(id sharing.DeviceID, n int) {
	h.on(id, func(c *card) { c.lingers = n })
}

// Fail lets the next calls of a method of driver.Partitions answer these errors; nil
// is an answer as usual.
func (h *Hardware) Fail(method string, answers ...error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fails[method] = append(h.fails[method], answers...)
}

// Calls are the methods called since the last time this was asked.
func (h *Hardware) Calls() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.calls
	h.calls = nil
	return calls
}

// Locate finds the MIG device of a UUID.
func (h *Hardware) Locate(uuid string) (id sharing.DeviceID, gi, ci int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.cards {
		for _, in := range c.instances {
			for _, x := range in.Compute {
				if x.UUID == uuid {
					return c.ID, in.GI, x.CI, true
				}
			}
		}
	}
	return "", 0, 0, false
}

// Crashing is a driver of a process that dies at one of the effects that at
// counts, on files and on the hardware alike.
func Crashing(under driver.Partitions, at *modestest.Crashing) driver.Partitions {
	return &crashing{under: under, at: at}
}

type crashing struct {
	under driver.Partitions
	at    *modestest.Crashing
}

func (c *crashing) read(do func() error) error {
	if c.at.Dead() {
		return modestest.ErrCrash
	}
	return do()
}

func (c *crashing) MIGMode(id sharing.DeviceID) (current, pending bool, err error) {
	err = c.read(func() error { current, pending, err = c.under.MIGMode(id); return err })
	return current, pending, err
}

func (c *crashing) Resetless(id sharing.DeviceID) (free bool, err error) {
	err = c.read(func() error { free, err = c.under.Resetless(id); return err })
	return free, err
}

func (c *crashing) Instances(id sharing.DeviceID) (all []driver.Instance, err error) {
	err = c.read(func() error { all, err = c.under.Instances(id); return err })
	return all, err
}

func (c *crashing) Processes(id sharing.DeviceID, gi int) (pids []int, err error) {
	err = c.read(func() error { pids, err = c.under.Processes(id, gi); return err })
	return pids, err
}

func (c *crashing) Clients(id sharing.DeviceID) (all []driver.Client, err error) {
	err = c.read(func() error { all, err = c.under.Clients(id); return err })
	return all, err
}

func (c *crashing) SetMIGMode(id sharing.DeviceID, on bool) error {
	return c.at.Effect(func() error { return c.under.SetMIGMode(id, on) })
}

func (c *crashing) CreateGPUInstance(id sharing.DeviceID, profile string, start int) (gi int, err error) {
	err = c.at.Effect(func() error { gi, err = c.under.CreateGPUInstance(id, profile, start); return err })
	return gi, err
}

func (c *crashing) CreateComputeInstance(id sharing.DeviceID, gi int) (made driver.ComputeInstance, err error) {
	err = c.at.Effect(func() error { made, err = c.under.CreateComputeInstance(id, gi); return err })
	return made, err
}

func (c *crashing) DestroyComputeInstance(id sharing.DeviceID, gi, ci int) error {
	return c.at.Effect(func() error { return c.under.DestroyComputeInstance(id, gi, ci) })
}

func (c *crashing) DestroyGPUInstance(id sharing.DeviceID, gi int) error {
	return c.at.Effect(func() error { return c.under.DestroyGPUInstance(id, gi) })
}
