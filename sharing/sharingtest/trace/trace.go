// SPDX-License-Identifier: Apache-2.0

// Package trace reads clusters and workloads of the form in which the openb trace is published,
// draws arrivals from them, and places those by published rules. It shares no code with the
// product, which is compared with it.
package trace

import (
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Node is a node of a cluster: thousandths of a CPU, MiB, and devices of one model.
type Node struct {
	Name        string
	CPU, Memory int64
	Devices     int
	Model       string
}

// Pod is what a pod asks for.
type Pod struct {
	CPU, Memory int64
	// Devices is how many, each to this many thousandths, which is less than 1000 only for one
	// device.
	Devices, Share int
	// Models are those that the pod accepts; none is all.
	Models []string
}

// Asked is what the pod asks of devices, in thousandths of one.
func (p *Pod) Asked() int { return p.Devices * p.Share }

// Accepts reports whether the pod accepts a model.
func (p *Pod) Accepts(model string) bool {
	for _, m := range p.Models {
		if m == model {
			return true
		}
	}
	return len(p.Models) == 0
}

// ReadNodes reads a list of nodes.
func ReadNodes(in io.Reader) ([]Node, error) {
	var nodes []Node
	err := rows(in, []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, func(r *row) {
		nodes = append(nodes, Node{Name: r.text("sn"), CPU: r.number("cpu_milli"), Memory: r.number("memory_mib"), Devices: int(r.number("gpu")), Model: r.text("model")})
	})
	return nodes, err
}

// ReadPods reads a list of pods.
func ReadPods(in io.Reader) ([]Pod, error) {
	var pods []Pod
	err := rows(in, []string{"cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, func(r *row) {
		p := Pod{CPU: r.number("cpu_milli"), Memory: r.number("memory_mib"), Devices: int(r.number("num_gpu")), Share: int(r.number("gpu_milli"))}
		if models := r.text("gpu_spec"); models != "" {
			p.Models = strings.Split(models, "|")
		}
		pods = append(pods, p)
	})
	return pods, err
}

// row is one line by the names of its columns.
type row struct {
	names map[string]int
	cells []string
	err   error
}

func (r *row) text(name string) string {
	if i, ok := r.names[name]; ok && i < len(r.cells) {
		return r.cells[i]
	}
	return ""
}

func (r *row) number(name string) int64 {
	n, err := strconv.ParseInt(r.text(name), 10, 64)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("column %s: %w", name, err)
	}
	return n
}

// rows reads comma separated values with a line of names that has at least the wanted ones.
func rows(in io.Reader, wanted []string, read func(*row)) error {
	lines, err := csv.NewReader(in).ReadAll()
	if err != nil {
		return fmt.Errorf("read the list: %w", err)
	}
	if len(lines) == 0 {
		return fmt.Errorf("read the list: it is empty")
	}
	r := row{names: map[string]int{}}
	for i, name := range lines[0] {
		r.names[name] = i
	}
	for _, name := range wanted {
		if _, ok := r.names[name]; !ok {
			return fmt.Errorf("read the list: no column %s", name)
		}
	}
	for i, cells := range lines[1:] {
		r.cells = cells
		if read(&r); r.err != nil {
			return fmt.Errorf("read the list: line %d: %w", i+2, r.err)
		}
	}
	return nil
}

// Capacity is all devices of a cluster, in thousandths.
func Capacity(nodes []Node) int {
	sum := 0
	for i := range nodes {
		sum += 1000 * nodes[i].Devices
	}
	return sum
}

// Arrivals draws the pods that arrive until they ask for as many devices as there are: all pods
// in random order, and then any of them again.
func Arrivals(pods []Pod, capacity int, r *rand.Rand) []Pod {
	order, asked := r.Perm(len(pods)), 0
	var out []Pod
	for i := 0; asked < capacity; i++ {
		p := pods[r.IntN(len(pods))]
		if i < len(order) {
			p = pods[order[i]]
		}
		out = append(out, p)
		asked += p.Asked()
	}
	return out
}

// Shuffled returns the nodes in a random order, which is the one in which ties are broken.
func Shuffled(nodes []Node, r *rand.Rand) []Node {
	out := make([]Node, len(nodes))
	for i, j := range r.Perm(len(nodes)) {
		out[i] = nodes[j]
	}
	return out
}

// Small returns a cluster and a workload that nobody measured: for tests that take seconds.
func Small() ([]Node, []Pod) {
	var nodes []Node
	for i := range 24 {
		n := Node{Name: fmt.Sprintf("n%02d", i), CPU: 64_000, Memory: 262_144, Devices: 2, Model: "T4"}
		if i%3 == 0 {
			n.CPU, n.Memory, n.Devices, n.Model = 96_000, 393_216, 8, "G2"
		}
		nodes = append(nodes, n)
	}
	var pods []Pod
	for _, k := range []struct{ times, cpu, memory, devices, share int }{
		{24, 16_000, 30_000, 0, 0}, {40, 11_000, 40_000, 1, 810}, {24, 6_000, 20_000, 1, 470}, {16, 3_000, 12_000, 1, 320},
		{30, 2_000, 8_000, 1, 190}, {60, 12_000, 30_000, 1, 1000}, {2, 24_000, 60_000, 2, 1000}, {1, 64_000, 200_000, 8, 1000},
	} {
		for range k.times {
			p := Pod{CPU: int64(k.cpu), Memory: int64(k.memory), Devices: k.devices, Share: k.share}
			if len(pods)%7 == 3 && k.devices > 0 {
				p.Models = []string{"G2"}
			}
			pods = append(pods, p)
		}
	}
	return nodes, pods
}
