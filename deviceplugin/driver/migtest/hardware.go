// SPDX-License-Identifier: Apache-2.0

// Package migtest has devices in memory that can be partitioned, for tests. They refuse what
// hardware refuses:
//   - places that overlap or do not exist, and more of a profile than may exist
//   - destroying an instance that is in use or not empty
//   - switching the mode of a device that is in use or must be reset first
//
// A reboot loses all instances. The MIG devices that are made after it have other UUIDs.
package migtest

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// Card is one device as it is built.
type Card struct {
	ID  sharing.DeviceID
	MIG sharing.Partitioning // geometries are not looked at
	// Resetless says that its mode changes without a reset, and is lost at a
	// reboot: Hopper and later. The mode of an A100 or A30 is kept on the card.
	Resetless bool
	Enabled   bool // it is partitioned from the start
}

// Hardware implements driver.Partitions. It is safe for concurrent use.
type Hardware struct {
	// Reach, if it is set, says what keeps a card from answering any call. It is set once.
	Reach func(id sharing.DeviceID) error

	mu    sync.Mutex
	cards []*card
	boots int
	fails map[string][]error // next answers by the name of the call
	calls []string
}

var _ driver.Partitions = (*Hardware)(nil)

type card struct {
	Card
	current, pending bool
	instances        []driver.Instance // by start
	users            map[int][]int     // processes by GPU instance; -1 is the device
	lingers          int               // so often a destroyed GPU instance stays
}

// device is the key of processes that use a device that is not partitioned.
const device = -1

// New returns a machine with cards.
func New(cards ...Card) *Hardware {
	h := &Hardware{fails: map[string][]error{}}
	h.Build(cards...)
	return h
}

// Build puts cards into the places of those that are there.
func (h *Hardware) Build(cards ...Card) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cards = nil
	for _, c := range cards {
		h.cards = append(h.cards, &card{Card: c, current: c.Enabled, pending: c.Enabled, users: map[int][]int{}})
	}
}

// find returns a card and its next scripted failure of a call. The caller holds
// the lock.
func (h *Hardware) find(call string, id sharing.DeviceID) (*card, error) {
	if h.Reach != nil {
		if err := h.Reach(id); err != nil {
			return nil, err
		}
	}
	h.calls = append(h.calls, call)
	if next := h.fails[call]; len(next) > 0 {
		h.fails[call] = next[1:]
		if next[0] != nil {
			return nil, fmt.Errorf("%s: %w", call, next[0])
		}
	}
	for _, c := range h.cards {
		if c.ID == id {
			return c, nil
		}
	}
	return nil, fmt.Errorf("%s of device %s: %w", call, id, driver.ErrUnsupported)
}

// MIGMode implements driver.Partitions.
func (h *Hardware) MIGMode(id sharing.DeviceID) (current, pending bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, err := h.find("MIGMode", id)
	if err != nil {
		return false, false, err
	}
	return c.current, c.pending, nil
}

// Resetless implements driver.Partitions.
func (h *Hardware) Resetless(id sharing.DeviceID) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, err := h.find("Resetless", id)
	if err != nil {
		return false, err
	}
	return c.Card.Resetless, nil
}

// SetMIGMode implements driver.Partitions.
func (h *Hardware) SetMIGMode(id sharing.DeviceID, on bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, err := h.find("SetMIGMode", id)
	switch {
	case err != nil:
		return err
	case c.current == on:
		c.pending = on
		return nil
	}
	c.pending = on // whether or not it can be so now
	if len(c.users) > 0 || len(c.instances) > 0 {
		return fmt.Errorf("SetMIGMode: %w", driver.ErrInUse)
	}
	if !c.Resetless {
		return fmt.Errorf("SetMIGMode: %w", driver.ErrResetRequired)
	}
	c.current = on
	return nil
}

// Instances implements driver.Partitions.
func (h *Hardware) Instances(id sharing.DeviceID) ([]driver.Instance, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, err := h.find("Instances", id)
	if err != nil {
		return nil, err
	}
	out := make([]driver.Instance, 0, len(c.instances))
	for _, in := range c.instances {
		in.Compute = slices.Clone(in.Compute)
		out = append(out, in)
	}
	return out, nil
}

// CreateGPUInstance implements driver.Partitions.
func (h *Hardware) CreateGPUInstance(id sharing.DeviceID, profile string, start int) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, err := h.find("CreateGPUInstance", id)
	if err != nil {
		return 0, err
	}
	if !c.current {
		return 0, fmt.Errorf("CreateGPUInstance: %w", driver.ErrUnsupported)
	}
	i := slices.IndexFunc(c.MIG.Profiles, func(p sharing.Profile) bool { return p.Name == profile })
	if i < 0 {
		return 0, fmt.Errorf("CreateGPUInstance of profile %s: %w", profile, driver.ErrNotFound)
	}
	p := &c.MIG.Profiles[i]
	if !slices.Contains(p.Starts, start) {
		return 0, errors.New("CreateGPUInstance: invalid argument")
	}
	place, same, gi := sharing.Partition{Start: start, Size: p.Size}, 1, 1
	for _, in := range c.instances {
		if place.Overlaps(sharing.Partition{Start: in.Start, Size: in.Size}) {
			return 0, fmt.Errorf("CreateGPUInstance: %w", driver.ErrInsufficient)
		}
		if in.Profile == profile {
			same++
		}
	}
	if p.Max > 0 && same > p.Max {
		return 0, fmt.Errorf("CreateGPUInstance: %w", driver.ErrInsufficient)
	}
	for slices.ContainsFunc(c.instances, func(in driver.Instance) bool { return in.GI == gi }) {
		gi++
	}
	c.instances = append(c.instances, driver.Instance{Profile: profile, Start: start, Size: p.Size, GI: gi})
	slices.SortFunc(c.instances, func(a, b driver.Instance) int { return cmp.Compare(a.Start, b.Start) })
	return gi, nil
}

// instance finds an instance of a card.
func (c *card) instance(gi int) (*driver.Instance, error) {
	for i := range c.instances {
		if c.instances[i].GI == gi {
			return &c.instances[i], nil
		}
	}
	return nil, fmt.Errorf("GPU instance %d: %w", gi, driver.ErrNotFound)
}

// CreateComputeInstance implements driver.Partitions.
func (h *Hardware) CreateComputeInstance(id sharing.DeviceID, gi int) (driver.ComputeInstance, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, err := h.find("CreateComputeInstance", id)
	if err != nil {
		return driver.ComputeInstance{}, err
	}
	in, err := c.instance(gi)
	if err != nil {
		return driver.ComputeInstance{}, err
	}
	if len(in.Compute) > 0 {
		return driver.ComputeInstance{}, fmt.Errorf("CreateComputeInstance: %w", driver.ErrInsufficient)
	}
	in.Compute = []driver.ComputeInstance{{CI: 0, UUID: h.uuid(id, gi, 0), Spans: true}}
	return in.Compute[0], nil
}

// uuid names a MIG device: another one after each boot.
func (h *Hardware) uuid(id sharing.DeviceID, gi, ci int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d/%d/%d", id, gi, ci, h.boots))
	return fmt.Sprintf("MIG-%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// DestroyComputeInstance implements driver.Partitions.
func (h *Hardware) DestroyComputeInstance(id sharing.DeviceID, gi, ci int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, err := h.find("DestroyComputeInstance", id)
	if err != nil {
		return err
	}
	in, err := c.instance(gi)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(in.Compute, func(x driver.ComputeInstance) bool { return x.CI == ci })
	switch {
	case i < 0:
		return fmt.Errorf("compute instance %d: %w", ci, driver.ErrNotFound)
	case len(c.users[gi]) > 0:
		return fmt.Errorf("DestroyComputeInstance: %w", driver.ErrInUse)
	}
	in.Compute = slices.Delete(in.Compute, i, i+1)
	return nil
}

// DestroyGPUInstance implements driver.Partitions.
func (h *Hardware) DestroyGPUInstance(id sharing.DeviceID, gi int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, err := h.find("DestroyGPUInstance", id)
	if err != nil {
		return err
	}
	in, err := c.instance(gi)
	if err != nil {
		return err
	}
	if len(in.Compute) > 0 || len(c.users[gi]) > 0 {
		return fmt.Errorf("DestroyGPUInstance: %w", driver.ErrInUse)
	}
	if c.lingers > 0 {
		c.lingers--
		return nil // and yet it is still there
	}
	c.instances = slices.DeleteFunc(c.instances, func(x driver.Instance) bool { return x.GI == gi })
	return nil
}

// Processes implements driver.Partitions.
func (h *Hardware) Processes(id sharing.DeviceID, gi int) ([]int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, err := h.find("Processes", id)
	if err != nil {
		return nil, err
	}
	return slices.Clone(c.users[gi]), nil
}

// Clients implements driver.Partitions. Programs are named after their numbers.
func (h *Hardware) Clients(id sharing.DeviceID) ([]driver.Client, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, err := h.find("Clients", id)
	if err != nil {
		return nil, err
	}
	var all []driver.Client
	for gi, pids := range c.users {
		for _, pid := range pids {
			all = append(all, driver.Client{PID: pid, Name: fmt.Sprint("program-", pid), GI: gi})
		}
	}
	slices.SortFunc(all, func(a, b driver.Client) int { return cmp.Compare(a.PID, b.PID) })
	return all, nil
}

// String draws every card: its mode, and its instances by start.
func (h *Hardware) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, c := range h.cards {
		fmt.Fprintf(&b, "%s on=%v pending=%v\n", c.ID, c.current, c.pending)
		for _, in := range c.instances {
			fmt.Fprintf(&b, "  %s at %d, %d compute instances\n", in.Profile, in.Start, len(in.Compute))
		}
	}
	return b.String()
}
