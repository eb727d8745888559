// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"encoding/json"
	"fmt"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// version is the format's version. A reader refuses any other: the file has one
// writer, and half of what it says would be wrong.
const version = 1

// maxSlices bounds memory slices; the largest device has 8.
const maxSlices = 64

// holding is one container's hold of one partition.
type holding struct {
	Device    sharing.DeviceID `json:"device"`
	Owner     sharing.Owner    `json:"owner"`
	Container string           `json:"container"`
	Claim     string           `json:"claim"` // allocation id
	// Kind and Order say when the container runs, see modes.Claim.
	Kind    string `json:"kind"`
	Order   int    `json:"order"`
	Profile string `json:"profile"`
	Start   int    `json:"start"` // first memory slice
	Size    int    `json:"size"`  // memory slices
	// Made is what was made at the place, for people: what exists now is asked of
	// the driver. It is zero until then.
	Made made `json:"made,omitzero"`
}

// made is an instance with the MIG device on it.
type made struct {
	GI   int    `json:"gi"`
	CI   int    `json:"ci"`
	UUID string `json:"uuid"`
}

// file is a holding on disk.
type file struct {
	Version int `json:"version"`
	holding
}

// holdingsFor are what a claim asks for, one per device.
func holdingsFor(c *modes.Claim) ([]holding, error) {
	out := make([]holding, 0, len(c.Devices))
	for i := range c.Devices {
		s := &c.Devices[i].Share
		h := holding{
			Device: s.Device, Owner: c.Owner, Container: c.Container, Claim: c.ID, Kind: c.Kind.String(), Order: c.Order,
			Profile: s.Partition.Profile, Start: s.Partition.Start, Size: s.Partition.Size,
		}
		if err := h.requireValid(); err != nil {
			return nil, fmt.Errorf("claim %s: %w", c.ID, err)
		}
		for j := range out {
			if out[j].Device == h.Device {
				return nil, fmt.Errorf("claim %s: it has two partitions of device %s; a container gets different devices", c.ID, h.Device)
			}
		}
		out = append(out, h)
	}
	return out, nil
}

// requireValid reports what makes a holding senseless.
func (h *holding) requireValid() error {
	switch {
	case h.Profile == "" || h.Size == 0:
		return fmt.Errorf("the share of device %s names no partition", h.Device)
	case h.Start < 0 || h.Size < 0 || h.Size > maxSlices || h.Start > maxSlices-h.Size:
		return fmt.Errorf("the share of device %s is of %d memory slices from %d on, which no device has", h.Device, h.Size, h.Start)
	}
	_, err := parseKind(h.Kind)
	return err
}

// parseKind reads when a container runs.
func parseKind(text string) (sharing.ContainerKind, error) {
	for _, k := range []sharing.ContainerKind{sharing.App, sharing.Init, sharing.Sidecar} {
		if k.String() == text {
			return k, nil
		}
	}
	return 0, fmt.Errorf("unknown kind of container %q", text)
}

// heldPartition is the place held.
func (h *holding) heldPartition() sharing.Partition {
	return sharing.Partition{Profile: h.Profile, Start: h.Start, Size: h.Size}
}

// matchesInstance reports whether an instance is at exactly the place held.
func (h *holding) matchesInstance(in *driver.Instance) bool {
	return in.Profile == h.Profile && in.Start == h.Start
}

// conflictsWith reports whether two holdings of one device cannot both stand: they need
// a common memory slice, and are not one instance for containers of one pod that
// never run at the same time. Two instances that overlap would be made in each
// other's place, since the containers of a pod that have the same slots are prepared
// together at the start of any of them. The rule is that of the ledger.
func (h *holding) conflictsWith(o *holding) bool {
	if !h.heldPartition().Overlaps(o.heldPartition()) {
		return false
	}
	if h.Owner != o.Owner || !h.heldPartition().Same(o.heldPartition()) {
		return true
	}
	earlier, later := h, o
	if earlier.Order > later.Order {
		earlier, later = later, earlier
	}
	a, _ := parseKind(earlier.Kind)
	b, _ := parseKind(later.Kind)
	return sharing.Together(a, b)
}

// encodeHolding writes a holding. Equal holdings give equal texts.
func encodeHolding(h *holding) ([]byte, error) {
	text, err := json.Marshal(file{Version: version, holding: *h})
	if err != nil {
		return nil, fmt.Errorf("encode holding: %w", err)
	}
	return append(text, '\n'), nil
}

// decodeHolding reads a holding. It is total: all of it, or an error.
func decodeHolding(text []byte) (holding, error) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return holding{}, fmt.Errorf("decode holding: %w", err)
	}
	if f.Version != version {
		return holding{}, fmt.Errorf("decode holding: version %d, this program reads version %d", f.Version, version)
	}
	if f.Device == "" || f.Owner == "" || f.Container == "" {
		return holding{}, fmt.Errorf("decode holding: it has no device, owner or container")
	}
	if err := f.requireValid(); err != nil {
		return holding{}, fmt.Errorf("decode holding: %w", err)
	}
	return f.holding, nil
}
