// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"slices"
)

// Held is one share with who holds it.
type Held struct {
	Owner      Owner
	Namespace  string
	Neighbours *Neighbours
	Container  string
	Kind       ContainerKind
	Share      Share
}

// View is a device together with the shares on it. What is used is computed
// from the shares once, when the view is made. A view is read only: methods that
// would change it return a new one.
type View struct {
	Device *Device
	held   []Held // shares of one owner are neighbours
	usage  usage
	// blocked: an owner whose shares cannot be read is on this node.
	blocked bool
	// partitioner accounts for the partitions of the device, in the tally; nil if the
	// device is not cut into partitions.
	partitioner Partitioner
	plan        any // the partitioner's
	effort      int
	tally       Tally
}

// NewView makes a view from the shares on a device. Shares of one owner must be
// neighbours; the ledger keeps them so. The backends are asked whether the device's
// mode cuts it into partitions. Without backends no device is cut, and the backend
// of such a mode gives nothing of it.
func NewView(d *Device, held []Held, b Backends) View {
	v := View{Device: d, partitioner: b.partitionerFor(d.Mode), effort: 1}
	if planner, ok := v.partitioner.(Planner); ok {
		v.plan, v.effort = planner.Plan(d)
	}
	v.setShares(held)
	return v
}

func (v *View) setShares(held []Held) {
	v.held, v.usage, v.tally = held, sumUsage(held, v.Device), Tally{}
	// Partitions of one pod are not weighed against each other as amounts are: each is
	// there for as long as the pod is.
	for i := 0; v.partitioner != nil && i < len(held); i++ {
		v.tally = v.partitioner.Count(v.tally, v.Device, held[i].Share.Partition)
	}
}

// WithShares returns the device with other shares on it. Shares of one owner must be neighbours.
func (v *View) WithShares(held []Held) View {
	w := *v
	w.setShares(held)
	return w
}

// With returns the device with what a placement has of it. The owner must hold nothing of it yet.
func (v *View) With(o Owner, p *Placement) View {
	return v.WithShares(appendShares(slices.Clone(v.held), o, p, v.Device.ID))
}

// Held returns the shares on the device. The caller must not change it.
func (v *View) Held() []Held { return v.held }

// UsedMemory is the memory that the shares take. Containers of one pod that never run
// at the same time count once.
func (v *View) UsedMemory() Bytes { return v.usage.memory }

// UsedCores is the compute that the shares take, counted like UsedMemory. A share with
// all the device's compute counts as 100.
func (v *View) UsedCores() Percent { return v.usage.cores }

// Sharers is the number of shares that run at the same time.
func (v *View) Sharers() int { return v.usage.sharers }

// FreeMemory is what is left to give, never below zero.
func (v *View) FreeMemory() Bytes { return v.Device.Memory.Less(v.usage.memory) }

// FreeCores is the compute left to give, never below zero.
func (v *View) FreeCores() Percent { return max(0, v.Device.Cores-v.usage.cores) }

// Empty reports whether nothing of the device is in use while the next container
// runs.
func (v *View) Empty() bool { return v.usage.sharers == 0 && !v.blocked }

// Serves reports whether a container that runs as a user is served beside those on the device.
func (v *View) Serves(u User) bool { return v.usage.users.admitsTenant(u) }

// ServesNamespace reports whether a pod of a namespace is served beside those on the device.
func (v *View) ServesNamespace(name string) bool { return v.usage.namespaces.admitsTenant(name) }

// Partitioned reports whether the device is cut into partitions, which its backend
// accounts for in the tally.
func (v *View) Partitioned() bool { return v.partitioner != nil }

// Plan returns what the device's Planner worked out beforehand; nil if it has none.
func (v *View) Plan() any { return v.plan }

// Effort is how much work a question to the device's backend is at most, where one about amounts
// is 1. Who asks many keeps count.
func (v *View) Effort() int { return v.effort }

// Tally returns what the device's Partitioner noted about the partitions on it. Only
// that backend understands it. The caller must not change it.
func (v *View) Tally() *Tally { return &v.tally }

// Worth returns what the empty device is worth to later requests, in the unit of
// Cost.Loss; 0 if nobody forecasts what they lose on this device.
func (v *View) Worth() int64 {
	if v.partitioner == nil { // most devices: this much is inlined
		return 0
	}
	return v.forecastWorth()
}

func (v *View) forecastWorth() int64 {
	if f, ok := v.partitioner.(Forecaster); ok {
		return f.Worth(v.Device)
	}
	return 0
}

// Most returns the most memory and compute that one request can still get of a device
// that is Partitioned, and what it could get if the device were empty. It is zero for
// other devices.
func (v *View) Most() (left, empty Cost) {
	if v.partitioner == nil {
		return Cost{}, Cost{}
	}
	return v.partitioner.Most(v)
}

// After returns the view as the next container of the same pod sees it once the
// pod got s for an earlier container of this kind. An init container has ended
// by then and takes nothing, except that its partition is there beside the others
// for as long as the pod exists; the backend may give the same one to a later
// container of the pod. The receiver is unchanged and nothing is allocated, so that
// many placements can be tried; Held does not list s.
func (v *View) After(kind ContainerKind, s *Share) View {
	after := *v
	if v.partitioner != nil {
		after.tally = v.partitioner.CountOwn(v.tally, v.Device, s.Partition, kind)
	}
	if kind != Init {
		after.usage = after.usage.plus(shareUsage(s, v.Device))
	}
	return after
}

// Alike reports whether two devices would treat every request of a pod that both
// admit the same. It may say false of devices that would.
func (v *View) Alike(w *View) bool {
	d, e := v.Device, w.Device
	if d.Mode != e.Mode || d.Memory != e.Memory || d.Physical != e.Physical || d.Cores != e.Cores || d.MaxShares != e.MaxShares || d.MaxClients != e.MaxClients || d.OneUser != e.OneUser ||
		d.OneNamespace != e.OneNamespace || d.NoRoot != e.NoRoot || v.usage != w.usage {
		return false
	}
	return v.partitioner == nil ||
		len(v.held)+len(w.held) == 0 && v.partitioner.Alike(d, v.tally, e, w.tally)
}

// Offered reports whether the pod may use the device at all, whatever is on it:
// it is in service, is in a mode the pod accepts, and passes the pod's selector.
func (v *View) Offered(pod *PodRequest) bool {
	return v.Device.IsInService() && acceptsMode(pod.Modes, v.Device.Mode) && pod.Selector.Accepts(v.Device)
}

// Admit makes the checks every mode has in common: health, selectors, cordons, sharers,
// exclusive holders, neighbours. It returns Fits or the first reason against.
func (v *View) Admit(pod *PodRequest) Reason {
	switch d := v.Device; {
	case !d.Healthy && !d.Changing:
		return Unhealthy
	case !acceptsMode(pod.Modes, d.Mode):
		return WrongMode
	case d.Changing:
		return ChangingMode
	case v.partitioner != nil && !v.partitioner.IsKnown(d):
		return PartitionsUnknown
	case !pod.Selector.isEmpty() && !pod.Selector.matchesDevice(d):
		return pod.Selector.refusalReason(d)
	case d.Cordon != nil:
		return Cordoned
	case v.blocked || v.usage.marks != 0 || v.usage.sharers >= d.MaxShares || pod.Neighbours.IsSelective():
		return v.admitBeside(pod)
	}
	return Fits
}

// admitBeside is what those on the device have against the pod, or it against them.
func (v *View) admitBeside(pod *PodRequest) Reason {
	switch {
	case !v.acceptsShares():
		return v.refusalReason()
	case v.usage.marks.has(heldSelective) || pod.Neighbours.IsSelective():
		c, _ := v.FindClash(pod)
		return c.Reason
	}
	return Fits
}

// IsOpen reports whether the device takes shares of some pod, one that those on it accept.
func (v *View) IsOpen() bool {
	d := v.Device
	return d.IsInService() && !d.Changing && (v.partitioner == nil || v.partitioner.IsKnown(d)) && v.acceptsShares() && !v.isHeldAlone()
}

func (v *View) acceptsShares() bool {
	return !v.blocked && !v.usage.marks.has(v.closingMarks()) && v.usage.sharers < v.Device.MaxShares
}

// closingMarks are those of which one closes the device to all other shares.
func (v *View) closingMarks() marks {
	if v.partitioner != nil {
		return heldWhole | heldForeign
	}
	return heldWhole | heldForeign | heldExclusive
}

// refusalReason is why the device takes no more shares.
func (v *View) refusalReason() Reason {
	switch {
	case v.blocked:
		return Blocked
	case v.usage.sharers >= v.Device.MaxShares && !v.usage.marks.has(heldWhole|heldForeign|heldExclusive):
		return TooManyShares
	}
	return HeldExclusively
}

func acceptsMode(modes []Mode, m Mode) bool {
	return len(modes) == 0 || slices.Contains(modes, m)
}

// Accepts reports whether the selector lets a device through. Models match by IsModel, UUIDs
// exactly.
func (s *Selector) Accepts(d *Device) bool {
	return s.isEmpty() || s.matchesDevice(d)
}

func (s *Selector) isEmpty() bool {
	return len(s.UseModels)+len(s.NotModels)+len(s.UseIDs)+len(s.NotIDs)+int(s.Virtual) == 0
}

// refusalReason is why a device does not match.
func (s *Selector) refusalReason(d *Device) Reason {
	if !s.Virtual.acceptsDevice(d) {
		return VirtualMismatch
	}
	return NotSelected
}

func (s *Selector) matchesDevice(d *Device) bool {
	return s.Virtual.acceptsDevice(d) &&
		(len(s.UseModels) == 0 || isAnyModel(d.Model, s.UseModels)) &&
		!isAnyModel(d.Model, s.NotModels) &&
		(len(s.UseIDs) == 0 || slices.Contains(s.UseIDs, d.ID)) &&
		!slices.Contains(s.NotIDs, d.ID)
}

// isAnyModel reports whether one of the names means the model.
func isAnyModel(model string, names []string) bool {
	for _, name := range names {
		if IsModel(name, model) {
			return true
		}
	}
	return false
}
