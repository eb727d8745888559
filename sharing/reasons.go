// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"strconv"
	"strings"
)

// wording is what is said of a reason.
type wording struct {
	// name is the code for machines: labels of metrics, JSON.
	name string
	// clause describes a device that is refused, for people. It follows a number or "device 0:" and
	// has neither a comma nor an amount.
	clause string
	// advice is what lets the pod in, as an order to the reader.
	advice string
}

// wording returns what is said of the reason. Every reason has all three.
func (r Reason) wording() wording {
	const wait = "wait until pods end"
	words := [Reasons]wording{
		Fits: {"Fits", "fitting", "nothing is in the way of this device"},
		Unhealthy: {"Unhealthy", "out of service",
			"look at the events of the node and at the device plugin's pod on it"},
		WrongMode: {"WrongMode", "in a mode that the pod does not accept",
			"name more modes in volcano.sh/vgpu-mode, or have a device put into one of them"},
		NoBackend: {"NoBackend", "in a mode that the scheduler does not know", "update the scheduler"},
		NotSelected: {"NotSelected", "excluded by the pod's lists of models and UUIDs",
			"correct the pod's annotations that name models or UUIDs"},
		NotEnoughMemory: {"NotEnoughMemory", "short of free memory", "ask for less memory, or " + wait},
		NotEnoughCores:  {"NotEnoughCores", "short of free compute", "ask for less compute, or " + wait},
		TooManyShares: {"TooManyShares", "shared by as many containers as allowed",
			wait + ", or have deviceSplitCount raised"},
		HeldExclusively: {"HeldExclusively", "held by one container alone", "wait until the pod that holds it ends"},
		NotEmpty:        {"NotEmpty", "in use and wanted alone", "ask for a share instead of a device alone, or " + wait},
		NoPartitionFits: {"NoPartitionFits", "without a free partition that is large enough",
			"ask for a smaller partition, or " + wait},
		GroupAlreadyHere: {"GroupAlreadyHere", "with a pod of the same group",
			wait + ", or remove volcano.sh/vgpu-podgroup-policy"},
		Blocked: {"Blocked", "blocked by a placement that cannot be read",
			"delete or repair the pod that has the event DevicePlacementUnreadable"},
		InAnotherMode: {"InAnotherMode", "in another mode than the container's other devices",
			"name one mode in volcano.sh/vgpu-mode, or ask for fewer devices"},
		OneDevicePerContainer: {"OneDevicePerContainer", "in a mode that gives a container one device only",
			"ask for one device, or name another mode in volcano.sh/vgpu-mode"},
		ChangingMode: {"ChangingMode", "changing mode",
			"wait; the event GPUModeWaiting of the node names the pods that have to end"},
		PartitionsUnknown: {"PartitionsUnknown", "with unknown partitions",
			"replace Volcano's own device plugin on the node, or accept another mode"},
		OtherUser: {"OtherUser", "serving containers of another user",
			"give pods that share the same securityContext.runAsUser, or " + wait},
		OtherNamespace: {"OtherNamespace", "serving pods of another namespace", wait + ", or accept another mode"},
		RootUser: {"RootUser", "refusing containers that run as root",
			"set securityContext.runAsUser to a user other than 0"},
		UnevenShares: {"UnevenShares", "giving another amount than the container's other devices",
			"ask for an amount that every device can give, or for fewer devices"},
		WantsToBeAlone: {"WantsToBeAlone", "in use and wanted without neighbours",
			wait + ", or accept neighbours in volcano.sh/vgpu-neighbours"},
		KeptApart: {"KeptApart", "with a pod that is kept apart from this one",
			wait + ", or change what keeps them apart"},
		Cordoned: {"Cordoned", "cordoned by an administrator",
			"wait, or ask whom kubectl deviceshare devices names"},
		VirtualMismatch: {"VirtualMismatch", "excluded by the pod's volcano.sh/vgpu-virtual",
			"change volcano.sh/vgpu-virtual, or add a node with devices of that kind"},
		OtherNUMANode: {"OtherNUMANode", "on another NUMA node", "ask for fewer devices, or remove volcano.sh/vgpu-numa"},
	}
	if r < Reasons {
		return words[r]
	}
	return wording{"Reason" + strconv.Itoa(int(r)), "refused for an unknown reason", "update this program"}
}

// String returns the code of the reason, for machines.
func (r Reason) String() string { return r.wording().name }

// Advice returns what a person can do about the reason.
func (r Reason) Advice() string { return r.wording().advice }

// Text describes one refused device for people, with the code in parentheses:
// "short of free memory (NotEnoughMemory)".
func (r Reason) Text() string {
	w := r.wording()
	return w.clause + " (" + w.name + ")"
}

// mostReasons is how many reasons a text names. Events are cut at 1024 bytes, and nodes that give
// other answers need room too.
const mostReasons = 4

// String is the text of the pod event: "0/8 devices fit container "main", 1 wanted: 5 short of free
// memory (NotEnoughMemory), 3 out of service (Unhealthy)". The most frequent reason comes first.
func (r *Refusals) String() string {
	var room [320]byte
	text := strconv.AppendInt(room[:0], int64(r.Found), 10)
	text = append(text, '/')
	text = strconv.AppendInt(text, int64(r.Devices), 10)
	text = append(text, " devices fit container "...)
	text = strconv.AppendQuote(text, r.Container)
	text = append(text, ", "...)
	text = strconv.AppendInt(text, int64(r.Wanted), 10)
	text = append(text, " wanted"...)
	sep, left := ": ", *r
	for range mostReasons {
		most := left.Main()
		if most == Fits {
			return string(text)
		}
		w := most.wording()
		text = append(text, sep...)
		text = strconv.AppendInt(text, int64(left.Count[most]), 10)
		text = append(append(text, ' '), w.clause...)
		text = append(append(append(text, " ("...), w.name...), ')')
		left.Count[most], sep = 0, ", "
	}
	if more := left.countRefused(); more > 0 {
		text = append(text, sep...)
		text = strconv.AppendInt(text, int64(more), 10)
		text = append(text, " for other reasons"...)
	}
	return string(text)
}

// Main returns the reason for which most devices were refused, the first one of equals; Fits if
// none was.
func (r *Refusals) Main() Reason {
	most := Fits
	for reason := Reason(1); reason < Reasons; reason++ {
		if r.Count[reason] > 0 && (most == Fits || r.Count[reason] > r.Count[most]) {
			most = reason
		}
	}
	return most
}

func (r *Refusals) countRefused() int {
	sum := 0
	for _, n := range r.Count {
		sum += int(n)
	}
	return sum
}

// MainReason returns the reason that a text names for most devices, the first one of equals; Fits
// if it names none. The text holds any number of texts of Refusals.String, as the event of a pod
// does.
func MainReason(text string) Reason {
	main, most := Fits, 0
	for reason := Reason(1); reason < Reasons; reason++ {
		sum := 0
		parts := strings.Split(text, " "+reason.Text())
		for _, before := range parts[:len(parts)-1] {
			n, err := strconv.ParseUint(before[strings.LastIndexByte(before, ' ')+1:], 10, 16)
			if err == nil {
				sum += int(n)
			}
		}
		if sum > most {
			main, most = reason, sum
		}
	}
	return main
}
