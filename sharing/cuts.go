// SPDX-License-Identifier: Apache-2.0

package sharing

// Cuts says which profile begins at which memory slice of a device: 0 where none
// does, else the position among the profiles of its Partitioning plus one. It has
// room for twice the slices of the largest device there is.
type Cuts [16]uint8

// Uncommon stands in Cuts where no layout can agree with what is in use: a
// profile the device does not have, a start beyond the last slice, or two
// partitions that begin at the same slice, as facts that others wrote down may
// have them.
const Uncommon = 255

// mark notes a partition.
func (c *Cuts) mark(p Partition, device *Partitioning) {
	start := min(max(p.Start, 0), len(c)-1)
	mark := uint8(Uncommon)
	if i := device.profile(p.Profile); i >= 0 && i < Uncommon-1 && start == p.Start && device.Profiles[i].Size == p.Size {
		mark = uint8(i + 1)
	}
	c.put(start, mark)
}

// join notes the partitions of d too.
func (c *Cuts) join(d *Cuts) {
	for start, mark := range d {
		if mark != 0 {
			c.put(start, mark)
		}
	}
}

func (c *Cuts) put(start int, mark uint8) {
	if c[start] != 0 && c[start] != mark {
		mark = Uncommon
	}
	c[start] = mark
}

// profile finds a profile by name; -1 if the device has none of that name.
func (p *Partitioning) profile(name string) int {
	if p == nil {
		return -1
	}
	for i := range p.Profiles {
		if p.Profiles[i].Name == name {
			return i
		}
	}
	return -1
}
