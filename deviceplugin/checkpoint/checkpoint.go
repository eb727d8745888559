// SPDX-License-Identifier: Apache-2.0

// Package checkpoint records on disk which allocations were prepared for which pod. After a
// restart everything that was made on the host can still be found, and removed when the pod
// is gone. The record does not say what a pod is entitled to: its placement says that.
package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"deviceshare/sharing"
)

// version is the format's version. A reader refuses any other: unlike an
// annotation, the file has one writer, and reading half of it would lose effects.
// A field that only people and metrics read may be added without a new version:
// programs from before it pass over it, and do not find it missing.
const version = 1

// Record is one allocation.
type Record struct {
	ID        string           `json:"id"`
	Owner     sharing.Owner    `json:"owner"`
	Namespace string           `json:"namespace"`
	Pod       string           `json:"pod"`
	Container string           `json:"container"`
	Slots     []string         `json:"slots"`
	Mode      sharing.Mode     `json:"mode"`
	Devices   []DeviceAndShare `json:"devices"`
}

// Shares is what the allocation has of each device. What its partitions are called in a
// configuration is not written down.
func (r *Record) Shares() []sharing.Share {
	out := make([]sharing.Share, 0, len(r.Devices))
	for i := range r.Devices {
		d := &r.Devices[i]
		out = append(out, sharing.Share{
			Device: d.Device, Mode: r.Mode, Memory: d.Memory, Cores: d.Cores, Whole: d.Whole,
			Partition: sharing.Partition{Profile: d.Partition.Profile, Start: d.Partition.Start, Size: d.Partition.Size},
		})
	}
	return out
}

// IsLimited reports whether libvgpu.so holds the container to its share of the device at an index.
func (r *Record) IsLimited(i int) bool {
	return (r.Mode == sharing.HAMiCore || r.Mode == sharing.MPS) && !r.Devices[i].Whole
}

// HasLimits reports whether the container has libvgpu.so in it, and a region.
func (r *Record) HasLimits() bool {
	for i := range r.Devices {
		if r.IsLimited(i) {
			return true
		}
	}
	return false
}

// DeviceAndShare is one share, and what a container that starts again gets.
type DeviceAndShare struct {
	Device sharing.DeviceID `json:"device"`
	Memory sharing.Bytes    `json:"memory"` // bytes
	Cores  sharing.Percent  `json:"cores"`
	Whole  bool             `json:"whole,omitempty"`
	// Partition is set in mode mig only.
	Partition Partition `json:"partition,omitzero"`
}

// Partition is a place on a device and the MIG device that was made there.
type Partition struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"` // first memory slice
	Size    int    `json:"size"`  // memory slices
	// UUID is "" until the partition is prepared. It may change with a reboot.
	UUID string `json:"uuid,omitempty"`
}

// file is the text on disk. Records stay raw so that the checksum is over bytes
// and not over how this program would write them.
type file struct {
	Version  int             `json:"version"`
	Checksum string          `json:"checksum"`
	Records  json.RawMessage `json:"records"`
}

// Encode writes records. Equal sets give equal texts.
func Encode(records []Record) ([]byte, error) {
	sorted := slices.Clone(records)
	slices.SortFunc(sorted, func(a, b Record) int { return strings.Compare(a.ID, b.ID) })
	if sorted == nil {
		sorted = []Record{}
	}
	raw, err := json.Marshal(sorted)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	text, err := json.Marshal(file{Version: version, Checksum: checksum(raw), Records: raw})
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	return append(text, '\n'), nil
}

// Decode reads records. It is total: all of them, or an error.
func Decode(text []byte) ([]Record, error) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("decode checkpoint: %w", err)
	}
	if f.Version != version {
		return nil, fmt.Errorf("decode checkpoint: version %d, this program reads version %d", f.Version, version)
	}
	if sum := checksum(f.Records); f.Checksum != sum {
		return nil, fmt.Errorf("decode checkpoint: checksum is %q, the records give %q", f.Checksum, sum)
	}
	var records []Record
	if err := json.Unmarshal(f.Records, &records); err != nil {
		return nil, fmt.Errorf("decode checkpoint: %w", err)
	}
	seen := map[string]bool{}
	for i := range records {
		r := &records[i]
		switch {
		case r.ID == "" || r.Owner == "" || r.Container == "":
			return nil, fmt.Errorf("decode checkpoint: record %d has no id, owner or container", i)
		case seen[r.ID]:
			return nil, fmt.Errorf("decode checkpoint: id %s is there twice", r.ID)
		}
		seen[r.ID] = true
	}
	return records, nil
}

// checksum ignores white space between tokens, which json may change.
func checksum(raw []byte) string {
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		compact.Reset()
		compact.Write(raw)
	}
	sum := sha256.Sum256(compact.Bytes())
	return "sha256:" + hex.EncodeToString(sum[:])
}
