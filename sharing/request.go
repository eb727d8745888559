// SPDX-License-Identifier: Apache-2.0

package sharing

// ContainerKind is when a container runs relative to the others of its pod.
type ContainerKind uint8

const (
	// App containers run together for the life of the pod.
	App ContainerKind = iota
	// Init containers run one after another, each to its end, before the app
	// containers: what they hold overlaps with what app containers hold.
	Init
	// Sidecar is an init container with restartPolicy Always: it starts in the
	// order of init containers and then runs beside everything after it.
	Sidecar
)

// String returns the wire name of the kind.
func (k ContainerKind) String() string {
	switch k {
	case Init:
		return "init"
	case Sidecar:
		return "sidecar"
	default:
		return "app"
	}
}

// Memory is how much memory a request asks of each device: an absolute amount,
// a percentage of the device that is chosen, or all of it. The zero value asks
// for all of it.
type Memory struct {
	amount  Bytes
	percent Percent
}

// WholeMemory asks for all memory of a device.
func WholeMemory() Memory { return Memory{} }

// AbsoluteMemory asks for exactly b bytes. b must be positive.
func AbsoluteMemory(b Bytes) Memory { return Memory{amount: b} }

// PercentMemory asks for p percent of whatever device is chosen, 1 to 100.
func PercentMemory(p Percent) Memory { return Memory{percent: p} }

// Whole reports whether all memory is asked for.
func (m Memory) Whole() bool { return m.amount == 0 && (m.percent == 0 || m.percent >= 100) }

// Absolute returns the absolute amount, if that is how it was asked.
func (m Memory) Absolute() (Bytes, bool) { return m.amount, m.amount > 0 }

// Percent returns the percentage, if that is how it was asked.
func (m Memory) Percent() (Percent, bool) { return m.percent, m.percent > 0 }

// On resolves the amount on a device that offers total bytes.
func (m Memory) On(total Bytes) Bytes {
	switch {
	case m.amount > 0:
		return m.amount
	case m.Whole():
		return total
	}
	return m.percent.Of(total)
}

// Selector narrows the devices a pod accepts. Empty lists accept every device.
type Selector struct {
	UseModels []string   // accept models that one of them means, see IsModel
	NotModels []string   // refuse models that one of them means, see IsModel
	UseIDs    []DeviceID // accept only these
	NotIDs    []DeviceID // refuse these
	Virtual   VirtualRule
}

// Request is what one container asks for.
type Request struct {
	Container string
	Kind      ContainerKind
	// Count is the number of different devices. It is at least 1.
	Count int
	// Memory and Cores are asked of each of the devices.
	Memory Memory
	// Cores is compute in percent of a device. 0 asks for no guarantee and gets
	// no limit; 100 asks to be the only one computing on the device.
	Cores Percent
	// Even asks that all devices give the same: the container's amounts were a total that is
	// split evenly. Memory and Cores are the part of each.
	Even bool
	// User is as whom the container runs, and Namespace that of its pod.
	User      User
	Namespace string
}

// Exclusive reports whether the request wants the device's compute for itself.
func (r *Request) Exclusive() bool { return r.Cores >= 100 }

// PodRequest is what one pod asks for: only its containers that ask for devices,
// init containers and sidecars first, each group in the order of the pod's spec.
type PodRequest struct {
	Owner     Owner
	Namespace string
	Requests  []Request
	// Modes the pod accepts, in order of preference; empty accepts every mode
	// and lets the score decide.
	Modes    []Mode
	Selector Selector
	// Policy names the placement policy this pod wants; "" takes the scheduler's.
	Policy string
	// Neighbours is what counts between the pod and those that are on a device.
	Neighbours *Neighbours
	// OneNUMA asks for devices of one NUMA node only.
	OneNUMA bool
	// Mates are the other pods of the pod's job on the node. Of devices that suit the pod equally,
	// it gets those that are near to theirs.
	Mates []Owner
}
