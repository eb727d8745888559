// SPDX-License-Identifier: Apache-2.0

package sharing

import "fmt"

// checkShares reports a device of which more is given than it has. With a view from before
// and an owner it reports only what this owner has made worse since.
func (v *View) checkShares(before *View, o Owner) error {
	d, was := v.Device, usage{}
	if before != nil {
		was = before.usage
	}
	switch u := v.usage; {
	case u.memory > d.Memory && v.partitioner == nil && u.memory > was.memory:
		return fmt.Errorf("device %s: %v of %v memory given", d.ID, u.memory, d.Memory)
	case u.cores > d.Cores && v.partitioner == nil && u.cores > was.cores:
		return fmt.Errorf("device %s: %d%% of %d%% compute given", d.ID, u.cores, d.Cores)
	case u.sharers > d.MaxShares: // every owner adds one
		return fmt.Errorf("device %s: %d of %d shares given", d.ID, u.sharers, d.MaxShares)
	}
	for i := range v.held {
		a := &v.held[i]
		if p := a.Share.Partition; (before == nil || a.Owner == o) && !d.hasPartition(p) {
			return fmt.Errorf("device %s: %s/%s holds slices %d to %d, which it does not have", d.ID, a.Owner, a.Container, p.Start, p.Start+p.Size-1)
		}
		for j := range v.held[:i] {
			b := &v.held[j]
			if (before == nil || a.Owner == o || b.Owner == o) && sharesConflict(a, b) {
				return fmt.Errorf("device %s: %s/%s and %s/%s hold what only one may", d.ID, a.Owner, a.Container, b.Owner, b.Container)
			}
		}
	}
	return nil
}

func (d *Device) hasPartition(p Partition) bool {
	return p.IsZero() || d.MIG != nil && d.MIG.hasSlicesOf(p)
}

// sharesConflict reports whether two shares of one device, later after earlier in the
// order of the ledger, cannot exist together.
func sharesConflict(later, earlier *Held) bool {
	if later.Owner == earlier.Owner && later.Container == earlier.Container {
		return true // a container gets different devices
	}
	if later.Owner == earlier.Owner && !Together(earlier.Kind, later.Kind) {
		// Their partitions are there together all the same, see View.After.
		p, q := later.Share.Partition, earlier.Share.Partition
		return p.Overlaps(q) && !p.Same(q)
	}
	a, b := later, earlier
	if a.Share.Whole || b.Share.Whole {
		return true
	}
	if pa, pb := a.Share.Partition, b.Share.Partition; !pa.IsZero() || !pb.IsZero() {
		return pa.IsZero() || pb.IsZero() || pa.Overlaps(pb)
	}
	return a.Share.Cores >= 100 || b.Share.Cores >= 100
}

// Together reports whether two containers of one pod, in the order of its spec
// with init containers first, ever run at the same time.
func Together(earlier, later ContainerKind) bool {
	return earlier != Init && (later != Init || earlier == Sidecar)
}
