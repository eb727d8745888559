// SPDX-License-Identifier: Apache-2.0

package sharing

// Backend is the scheduler half of one mode. Implementations hold no state:
// whatever is in use on a device is in the view.
type Backend interface {
	// Mode is the mode this backend serves.
	Mode() Mode
	// Fit says what the request would take of the device, or why it does not
	// fit. It must not change its arguments, must give the same answer for the
	// same arguments, and must not allocate. The common checks of Admit have been
	// made by the caller.
	//
	// The view is the caller's: it must be neither changed nor kept, since the
	// caller may write another one in its place once the call is over. It is
	// passed by its address because copying it costs more than most backends take
	// to answer.
	Fit(v *View, req *Request) (Cost, Reason)
	// Share is what the request gets. Fit has said that it fits. The rules of Fit
	// apply to it.
	Share(v *View, req *Request) Share
}

// Cost is what a share takes of a device. It is apart from the share because many
// devices are weighed for one that is chosen.
type Cost struct {
	Memory Bytes
	Cores  Percent
	// Loss is what later requests lose by it, in a unit of the backend: a forecast if
	// View.Worth says what the device is worth, else what is given beyond what was
	// asked for. It is 0 where amounts are divided.
	Loss int64
}

// Cost is what the share takes of its device. It says nothing about the loss.
func (s *Share) Cost() Cost {
	return Cost{Memory: s.Memory, Cores: s.Cores}
}

// Chooser is an optional power of a backend whose devices can give one request
// different shares, where the one Fit prefers may stand in the way of the pod's
// other containers: partitions of different geometries, for example.
type Chooser interface {
	Backend
	// Option returns the n-th share the device could give, counted from 0, which
	// is the one of Share, and its cost; false past the last. The rules of Fit
	// apply to it.
	Option(v *View, req *Request, n int) (Share, Cost, bool)
}

// Backends lists one backend per mode. Of devices that score the same, those of an
// earlier backend are preferred.
type Backends []Backend

// For returns the backend of a mode; false if there is none. There is no
// fallback: a mode without a backend is refused.
func (b Backends) For(m Mode) (Backend, bool) {
	if i := b.Index(m); i >= 0 {
		return b[i], true
	}
	return nil, false
}

// Index returns the position of the backend of a mode in the list; -1 if there is
// none.
func (b Backends) Index(m Mode) int {
	for i, x := range b {
		if x.Mode() == m {
			return i
		}
	}
	return -1
}
