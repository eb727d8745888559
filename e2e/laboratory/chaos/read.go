// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/report"
)

// The annotations that the observer reads; docs/wire.md says what is in them.
const (
	placementKey = "volcano.sh/vgpu-placement"
	inventoryKey = "volcano.sh/node-vgpu-inventory"
)

// readPod reads a pod that was placed; ok is false for one that was not, or asks for nothing.
func readPod(p *corev1.Pod) (pod Pod, ok bool, err error) {
	text, placed := p.Annotations[placementKey]
	if !placed {
		return Pod{}, false, nil
	}
	var placement struct {
		Containers []struct {
			Name, Kind string
			Shares     []struct {
				UUID, Mode string
				Memory     int64
				Cores      int
				Whole      bool
				Partition  *struct {
					Profile     string
					Start, Size int
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &placement); err != nil {
		return Pod{}, false, fmt.Errorf("read the placement of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	pod = Pod{UID: string(p.UID), Name: p.Namespace + "/" + p.Name, Initialized: initialized(p),
		Holds: p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed}
	for _, c := range placement.Containers {
		to := Container{Name: c.Name, Kind: Kind(c.Kind), IDs: ids(p, c.Name)}
		for _, s := range c.Shares {
			share := Share{Device: s.UUID, Mode: s.Mode, Memory: s.Memory, Cores: s.Cores, Whole: s.Whole}
			if s.Partition != nil {
				share.Profile, share.Start, share.Size = s.Partition.Profile, s.Partition.Start, s.Partition.Size
			}
			to.Shares = append(to.Shares, share)
		}
		pod.Containers = append(pod.Containers, to)
	}
	return pod, true, nil
}

// initialized reports whether the init containers have ended, as the kubelet says.
func initialized(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodInitialized && c.Status == corev1.ConditionTrue
	})
}

// ids are the runtime's names of a container's present and last life.
func ids(p *corev1.Pod, name string) []string {
	var out []string
	add := func(id string) {
		if _, bare, ok := strings.Cut(id, "://"); ok {
			out = append(out, bare)
		}
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if s.Name != name {
			continue
		}
		add(s.ContainerID)
		if last := s.LastTerminationState.Terminated; last != nil {
			add(last.ContainerID)
		}
	}
	return out
}

// readOffers reads what a node offers. A node that offers nothing at the moment has no annotation.
func readOffers(n *corev1.Node) (map[string]Offer, error) {
	text, there := n.Annotations[inventoryKey]
	if !there {
		return nil, nil
	}
	var inventory struct {
		Devices []struct {
			UUID             string
			Memory           int64
			Cores, MaxShares int
		}
	}
	if err := json.Unmarshal([]byte(text), &inventory); err != nil {
		return nil, fmt.Errorf("read the inventory of node %s: %w", n.Name, err)
	}
	out := map[string]Offer{}
	for _, d := range inventory.Devices {
		out[d.UUID] = Offer{Memory: d.Memory, Cores: d.Cores, Shares: d.MaxShares}
	}
	return out, nil
}

// owner says which container a process belongs to.
type owner struct{ pod, container string }

// machine is what the driver says at one moment.
type machine struct {
	processes  []Process
	partitions []Partition
}

// readMachine reads what `fakegpuctl show` prints. owners are by process number. A process without
// an owner is left out: it has ended since, or it is no container's, such as a server of MPS.
func readMachine(show string, owners map[int]owner) (machine, error) {
	var out machine
	var device string
	var in Partition
	for line := range strings.Lines(show) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "device":
			device = report.Value(line, "uuid")
		case "instance":
			in = Partition{Device: device, Profile: report.Value(line, "profile")}
			var err error
			if in.Start, err = strconv.Atoi(report.Value(line, "start")); err != nil {
				return machine{}, fmt.Errorf("read the driver's partitions: line %q: %w", strings.TrimSpace(line), err)
			}
			if in.Profile != "" { // one that nobody can use yet has none
				out.partitions = append(out.partitions, in)
			}
		case "process":
			p, err := readProcess(line)
			if err != nil {
				return machine{}, err
			}
			o, known := owners[p.PID]
			if !known {
				continue
			}
			p.Pod, p.Container, p.Device = o.pod, o.container, device
			if strings.HasPrefix(line, "    ") { // users of a partition are indented below it
				p.Profile, p.Start = in.Profile, in.Start
			}
			out.processes = append(out.processes, p)
		}
	}
	return out, nil
}

// readProcess reads what a line says of the process alone.
func readProcess(line string) (Process, error) {
	pid, err := strconv.Atoi(report.Value(line, "pid"))
	used, err2 := strconv.ParseInt(report.Value(line, "used_mib"), 10, 64)
	if err != nil || err2 != nil {
		return Process{}, fmt.Errorf("read the driver's processes: line %q", strings.TrimSpace(line))
	}
	return Process{PID: pid, Memory: used << 20}, nil
}
