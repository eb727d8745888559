// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strconv"
	"strings"

	"deviceshare/sharing"
)

// ContainerRef is what a decoder of the legacy text must know of one container,
// because that text does not name containers.
type ContainerRef struct {
	Name string
	Kind sharing.ContainerKind
	// Asks says that the container asks for devices. Legacy writers also make
	// an entry, an empty one, for a container that names a resource with 0: such
	// a container may count as asking or not, both are understood.
	Asks bool
	// Count is how many devices it asks for; 0 is not known, or none.
	Count int
}

// EncodeAssigned writes a decision in the legacy grammar: for each device of a
// container
//
//	UUID,NVIDIA,memory,cores:
//
// and ';' between containers. Memory is in units of factor MiB, rounded up, so
// that nobody counts less than was given. A partition is UUID[geometry-position].
// Init containers and sidecars are left out: legacy readers pair entries with
// spec.containers. If containers are given, those that ask but hold nothing get
// the empty entry that legacy writers make for vgpu-number 0.
func EncodeAssigned(p sharing.Placement, factor int64, containers ...ContainerRef) string {
	var entries []string
	if len(containers) == 0 {
		for i := range p.Containers {
			if p.Containers[i].Kind == sharing.App {
				entries = append(entries, encodeEntry(p.Containers[i].Shares, factor))
			}
		}
	}
	for _, ref := range containers {
		if ref.Kind != sharing.App || !ref.Asks {
			continue
		}
		var shares []sharing.Share
		if c, ok := p.Container(ref.Name); ok {
			shares = c.Shares
		}
		entries = append(entries, encodeEntry(shares, factor))
	}
	return strings.Join(entries, ";")
}

func encodeEntry(shares []sharing.Share, factor int64) string {
	var b strings.Builder
	for i := range shares {
		s := &shares[i]
		units := s.Memory.WholeMiB()
		units = units/factorOrOne(factor) + min(units%factorOrOne(factor), 1)
		b.WriteString(assignedID(s))
		b.WriteString("," + typePrefix + ",")
		b.WriteString(strconv.FormatInt(units, 10))
		b.WriteByte(',')
		b.WriteString(strconv.Itoa(int(s.Cores)))
		b.WriteByte(':')
	}
	return b.String()
}

// assignedID is the device, or the partition with its place in its geometry. A
// partition outside any geometry has no position; its first slice stands in,
// which keeps ids of different partitions different.
func assignedID(s *sharing.Share) string {
	q := &s.Partition
	switch {
	case *q == sharing.Partition{}:
		return string(s.Device)
	case q.Geometry == "":
		return string(s.Device) + "[-" + strconv.Itoa(q.Start) + "]"
	}
	return string(s.Device) + "[" + q.Geometry + "-" + strconv.Itoa(q.Position) + "]"
}

// DecodeAssigned reads the legacy grammar and pairs the entries with the app
// containers that ask, in order; another number of entries is an error, except
// that empty entries may be missing or too many. The text says neither the node
// nor the group.
//
// The text says neither mode nor where a partition lies. Both are taken from the
// inventory, if one is given: a partition of a device that is not in mode mig, a
// device in mode mig without a partition, and a partition that is not in the
// device's geometries are errors, since what is free beside it would be a guess.
// A device that the inventory does not list, or lists without partitioning, and
// every device when there is no inventory, keeps what the text says: mode mig
// with Geometry and Position set and Size 0, or mode hami-core. Such a share must
// be resolved against an inventory before anything is prepared from it. Errors
// are of type *Error.
func DecodeAssigned(text string, containers []ContainerRef, inv *sharing.Inventory, factor int64) (sharing.Placement, error) {
	return decodeAssigned(text, containers, resolver{inv: inv}, factor)
}

func decodeAssigned(text string, containers []ContainerRef, r resolver, factor int64) (sharing.Placement, error) {
	f := &firstError{text: PodAssigned}
	var asking []ContainerRef
	for _, c := range containers {
		if c.Kind == sharing.App && c.Asks {
			asking = append(asking, c)
		}
	}
	if len(text) > MaxText {
		f.failf("", "is %d bytes long, more than %d", len(text), MaxText)
		return sharing.Placement{}, f.asError()
	}
	entries := strings.Split(text, ";")
	empty := 0
	for _, e := range entries {
		if e == "" {
			empty++
		}
	}
	// Nobody who asks for a device has an empty entry, so without them the rest
	// must match those who ask.
	all := len(entries) == len(asking)
	if !all && len(entries)-empty != len(asking) {
		f.failf("", "has %d entries for %d containers that ask for devices", len(entries)-empty, len(asking))
		return sharing.Placement{}, f.asError()
	}
	p := sharing.Placement{}
	next, offset := 0, 0
	for _, e := range entries {
		if e != "" {
			shares := decodeEntry(f, e, offset, r, factor)
			p.Containers = append(p.Containers, sharing.ContainerShares{Container: asking[next].Name, Shares: shares})
		}
		if e != "" || all {
			next++
		}
		offset += len(e) + 1
	}
	if f.err != nil {
		return sharing.Placement{}, f.asError()
	}
	return p, nil
}

func decodeEntry(f *firstError, text string, start int, r resolver, factor int64) []sharing.Share {
	var shares []sharing.Share
	_ = forEachPiece(f, text, ':', func(piece string, offset int) { // f keeps the mistake
		s := assignedShare(f, piece, start+offset, factor)
		if f.err == nil {
			s = r.resolveShare(f, start+offset, s)
		}
		for i := range shares {
			if shares[i].Device == s.Device {
				f.failf(bytePosition(start+offset), "device %s is there twice for one container", quoteExcerpt(string(s.Device)))
			}
		}
		shares = append(shares, s)
	})
	return shares
}

func assignedShare(f *firstError, piece string, offset int, factor int64) sharing.Share {
	fields := strings.Split(piece, ",")
	if len(fields) < 4 {
		f.failf(bytePosition(offset), "device %s has %d fields, want 4", quoteExcerpt(piece), len(fields))
		return sharing.Share{}
	}
	id, partition := partitionID(f, offset, fields[0])
	s := sharing.Share{
		Device:    id,
		Mode:      sharing.HAMiCore,
		Memory:    memoryOf(f, offset, fields[2], factor),
		Cores:     sharing.Percent(parseDecimal(f, offset, "cores", fields[3], 100)),
		Partition: partition,
	}
	if fields[1] != typePrefix {
		f.failf(bytePosition(offset), "type %s is not %s", quoteExcerpt(fields[1]), typePrefix)
	}
	if partition != (sharing.Partition{}) {
		s.Mode = sharing.MIG
	} else if s.Memory == 0 {
		// Older readers take a limit of 0 for no limit.
		f.failf(bytePosition(offset), "device %s is given without memory", quoteExcerpt(string(id)))
	}
	return s
}

// partitionID splits UUID[geometry-position].
func partitionID(f *firstError, offset int, text string) (sharing.DeviceID, sharing.Partition) {
	id, rest, bracket := strings.Cut(text, "[")
	if !validID(id) {
		f.failf(bytePosition(offset), "%s is not a device UUID", quoteExcerpt(text))
		return "", sharing.Partition{}
	}
	if !bracket {
		return sharing.DeviceID(id), sharing.Partition{}
	}
	inside, closed := strings.CutSuffix(rest, "]")
	group, position, dash := strings.Cut(inside, "-")
	if !closed || !dash || !ValidGroup(group) {
		f.failf(bytePosition(offset), "%s is not UUID[geometry-position]", quoteExcerpt(text))
		return "", sharing.Partition{}
	}
	return sharing.DeviceID(id), sharing.Partition{
		Geometry: group,
		Position: int(parseDecimal(f, offset, "position", position, maxCount-1)),
	}
}
