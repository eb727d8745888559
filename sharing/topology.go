// SPDX-License-Identifier: Apache-2.0

package sharing

// Path is how two devices of a node reach each other, the slower the lower. The names are those
// of `nvidia-smi topo -m`.
type Path uint8

// The paths.
const (
	// PathUnknown: their node does not say, neither by links nor by NUMA nodes.
	PathUnknown Path = iota
	// PathSYS crosses the interconnect of NUMA nodes.
	PathSYS
	// PathNODE crosses PCIe host bridges of one NUMA node.
	PathNODE
	// PathPHB crosses one PCIe host bridge, as a rule the CPU.
	PathPHB
	// PathPXB crosses several PCIe switches and no host bridge.
	PathPXB
	// PathPIX crosses at most one PCIe switch.
	PathPIX
	// PathNVLink is one NVLink or more, directly or through a switch of NVLinks.
	PathNVLink
)

// pathOf reads the kind of a link; PathUnknown for a text that nobody here knows.
func pathOf(kind string) Path {
	switch kind {
	case "nvlink":
		return PathNVLink
	case "pix":
		return PathPIX
	case "pxb":
		return PathPXB
	case "phb":
		return PathPHB
	case "node":
		return PathNODE
	case "sys":
		return PathSYS
	}
	return PathUnknown
}

// maxNVLinks bounds how many NVLinks of a pair count, so that no text makes sums wrap.
const maxNVLinks = 64

// PathTo returns how d reaches e, another device of its node, and by how many NVLinks if by any:
// the better of what either device says. Where neither says anything, their NUMA nodes tell. It
// allocates nothing.
func (d *Device) PathTo(e *Device) (path Path, links int) {
	path, links = d.linkTo(e.ID)
	if back, n := e.linkTo(d.ID); back > path || back == path && n > links {
		path, links = back, n
	}
	switch {
	case path != PathUnknown || d.NUMA < 0 || e.NUMA < 0:
		return path, links
	case d.NUMA == e.NUMA:
		return PathNODE, 0
	}
	return PathSYS, 0
}

// linkTo is the best of what d says about its way to a peer.
func (d *Device) linkTo(peer DeviceID) (path Path, links int) {
	for i := range d.Links {
		l := &d.Links[i]
		if l.Peer != peer {
			continue
		}
		if p := pathOf(l.Kind); p > path || p == path && p == PathNVLink {
			path = p
			if p == PathNVLink {
				links = max(links, min(max(l.Count, 1), maxNVLinks))
			}
		}
	}
	return path, links
}
