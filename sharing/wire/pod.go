// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math"
	"strconv"
	"strings"

	"deviceshare/sharing"
)

// PlacementAnnotations is what the scheduler writes with a binding: the decision
// as JSON and the six legacy annotations, so that either device plugin can
// follow. unixSeconds is the time of the decision. The containers of the pod, if
// given, make the legacy text complete for containers with vgpu-number 0. It
// is an error if the placement is not valid or too long.
func PlacementAnnotations(p sharing.Placement, factor, unixSeconds int64, containers ...ContainerRef) (map[string]string, error) {
	text, err := EncodePlacement(p)
	if err != nil {
		return nil, err
	}
	assigned := EncodeAssigned(p, factor, containers...)
	now := strconv.FormatInt(unixSeconds, 10)
	return map[string]string{
		PodPlacement:  text,
		PodNode:       p.Node,
		PodTime:       now,
		PodAssigned:   assigned,
		PodToAllocate: assigned,
		PodBindPhase:  PhaseAllocating,
		PodBindTime:   now,
	}, nil
}

// Receipt is what the annotations of a pod say when it has its devices: that nothing is left to
// allocate. The legacy device plugin takes a pod that does not say so for one that waits,
// whatever its phase, and gives its devices to a pod that does.
func Receipt() map[string]string {
	return map[string]string{
		PodTime:       strconv.FormatUint(math.MaxUint64, 10),
		PodToAllocate: "",
		PodBindPhase:  PhaseSuccess,
	}
}

// PlacementKeys returns the keys of the annotations of a pod that ReadPlacement and ReadBegun read.
func PlacementKeys() []string { return []string{PodPlacement, PodNode, PodAssigned, UserMode} }

// ReadPlacement reads the decision about a pod: from the JSON text, else from
// the legacy one. Nothing found is not an error. The inventory may be nil; it is the one
// of the node the pod is on.
//
// It errs on the side of not knowing. An error, after which the pod must count as
// holding anything on its node, is: a JSON text that is wrong, even if the legacy one is
// right; texts that name different nodes, or a node other than the inventory's;
// texts that name different devices, as after a scheduler that knows only the legacy
// text has decided anew; the legacy text that gives a device in a mode the pod does
// not accept; and a container that does not have as many shares as its Count, since
// what it really has would count as free. The legacy text is about app containers
// only, so others are not looked for in it.
func ReadPlacement(annotations map[string]string, containers []ContainerRef, inv *sharing.Inventory, factor int64) (p sharing.Placement, found bool, err error) {
	return readPlacement(annotations, containers, resolver{inv: inv}, factor)
}

// ReadBegun is like ReadPlacement for a pod that began in a mode, which the legacy text
// does not name. All devices that a legacy scheduler gives a pod are in one mode, and
// those that the pod has stay in it, whatever mode the inventory says they get next.
func ReadBegun(annotations map[string]string, containers []ContainerRef, inv *sharing.Inventory, begun sharing.Mode, factor int64) (p sharing.Placement, found bool, err error) {
	return readPlacement(annotations, containers, resolver{inv, begun}, factor)
}

func readPlacement(annotations map[string]string, containers []ContainerRef, r resolver, factor int64) (p sharing.Placement, found bool, err error) {
	text, complete := annotations[PodPlacement]
	assigned := annotations[PodAssigned]
	if !complete && assigned == "" {
		return sharing.Placement{}, false, nil
	}
	if complete {
		p, err = DecodePlacement(text)
		if err == nil && assigned != "" && devicesOf(assigned) != devicesOf(EncodeAssigned(p, factor)) {
			err = &Error{placementFormat, "", "names other devices than " + PodAssigned}
		}
	} else {
		p, err = readLegacy(annotations, containers, r, factor)
	}
	if err == nil {
		err = requireSameNode(&p, annotations, r.inv)
	}
	if err == nil {
		err = requireShareCounts(&p, containers, complete)
	}
	if err != nil {
		return sharing.Placement{}, false, err
	}
	return p, true, nil
}

func readLegacy(annotations map[string]string, containers []ContainerRef, r resolver, factor int64) (sharing.Placement, error) {
	p, err := decodeAssigned(annotations[PodAssigned], containers, r, factor)
	if err != nil {
		return sharing.Placement{}, err
	}
	p.Node = annotations[PodNode]
	if !validName(p.Node, longestName) {
		return sharing.Placement{}, &Error{PodNode, "", quoteExcerpt(p.Node) + " is not a node name"}
	}
	if r.inv == nil {
		return p, nil
	}
	// The legacy text does not say under which geometries it was written; those it
	// was read under are the only ones there are.
	p.GeometryHash = r.inv.GeometryHash
	if modes, ok := annotations[UserMode]; ok {
		return p, requireAcceptedModes(&p, modes)
	}
	return p, nil
}

// requireAcceptedModes checks the modes of a decision against those the pod accepts. Legacy
// schedulers take every mode they do not know for hami-core.
func requireAcceptedModes(p *sharing.Placement, modes string) error {
	for _, c := range p.Containers {
		for _, s := range c.Shares {
			if !strings.Contains(","+modes+",", ","+string(s.Mode)+",") {
				return &Error{PodAssigned, "", "gives container " + quoteExcerpt(c.Container) + " a device in mode " +
					string(s.Mode) + ", the pod accepts " + quoteExcerpt(modes)}
			}
		}
	}
	return nil
}

// requireShareCounts checks that every container has the devices it asks for. A complete text
// is about containers of every kind.
func requireShareCounts(p *sharing.Placement, containers []ContainerRef, complete bool) error {
	for i := range containers {
		ref := &containers[i]
		if !ref.Asks || ref.Count <= 0 || !complete && ref.Kind != sharing.App {
			continue
		}
		held := 0
		if c, ok := p.Container(ref.Name); ok {
			held = len(c.Shares)
		}
		if held != ref.Count {
			return &Error{placementFormat, "containers", "gives container " + quoteExcerpt(ref.Name) + " " + strconv.Itoa(held) +
				" devices, it asks for " + strconv.Itoa(ref.Count)}
		}
	}
	return nil
}

func requireSameNode(p *sharing.Placement, annotations map[string]string, inv *sharing.Inventory) error {
	if name, ok := annotations[PodNode]; ok && name != p.Node {
		return &Error{placementFormat, "node", "is " + quoteExcerpt(p.Node) + ", " + PodNode + " is " + quoteExcerpt(name)}
	}
	if inv != nil && inv.Node != p.Node {
		return &Error{placementFormat, "node", "is " + quoteExcerpt(p.Node) + ", the inventory is of " + quoteExcerpt(inv.Node)}
	}
	return nil
}

// devicesOf keeps the device and partition ids of a legacy text, without
// amounts and without empty entries, container by container.
func devicesOf(text string) string {
	var b strings.Builder
	for entry := range strings.SplitSeq(text, ";") {
		if entry == "" {
			continue
		}
		for device := range strings.SplitSeq(entry, ":") {
			id, _, _ := strings.Cut(device, ",")
			b.WriteString(id)
			b.WriteByte(':')
		}
		b.WriteByte(';')
	}
	return b.String()
}
