// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest/trace"
	"deviceshare/sharing/wire"
)

// uniform is a cluster of nodes that are alike, with 8 devices each.
func uniform(n int) []trace.Node {
	return slices.Repeat([]trace.Node{{CPU: 128_000, Memory: 1 << 20, Devices: 8, Model: "NVIDIA Test"}}, n)
}

// The kinds of pods that take turns: they differ in devices only.
func quarters(n int) []trace.Pod {
	return slices.Repeat([]trace.Pod{{CPU: 100, Memory: 128, Devices: 1, Share: 250}}, n)
}
func withoutDevices(n int) []trace.Pod {
	return slices.Repeat([]trace.Pod{{CPU: 100, Memory: 128}}, n)
}

// spell is how long the parts of one session took.
type spell struct{ open, place, finish time.Duration }

func (s spell) total() time.Duration { return s.open + s.place + s.finish }

// turn places pods in one session, and has them all go away again.
func (c *cycles) turn(pods []trace.Pod) spell {
	c.t.Helper()
	var objects []apiruntime.Object
	var made []*corev1.Pod
	for i := range pods {
		pod, group := c.pod(&pods[i])
		made, objects = append(made, pod), append(objects, group, pod)
	}
	for chunk := range slices.Chunk(objects, atOnce) {
		c.create(chunk...)
	}
	runtime.GC()
	var s spell
	begin := time.Now()
	ssn := c.open()
	s.open = time.Since(begin)
	c.runActions(ssn)
	s.place = time.Since(begin) - s.open
	framework.CloseSession(ssn)
	s.finish = time.Since(begin) - s.open - s.place
	c.settle()
	c.drop(made)
	return s
}

// TestScale prints the table of docs/scale.md of the scheduler alone, over a fake API server. It is
// part of `make scale`.
func TestScale(t *testing.T) {
	sizes := os.Getenv("DEVICESHARE_SCALE")
	if sizes == "" {
		t.Skip("takes minutes: make scale")
	}
	const pods, turns = 200, 9
	fmt.Println("nodes pods pods/s-device pods/s-cpu-only ratio open-ms per-pod-ms-device per-pod-ms-cpu-only")
	for _, text := range strings.Split(sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("how many nodes? DEVICESHARE_SCALE: %v", err)
		}
		c := newCycles(t, uniform(n))
		c.turn(quarters(pods))
		c.turn(withoutDevices(pods))
		var device, cpu []spell
		var ratios []float64
		for i := range turns {
			d, p := pair(i, func() spell { return c.turn(quarters(pods)) }, func() spell { return c.turn(withoutDevices(pods)) })
			device, cpu = append(device, d), append(cpu, p)
			ratios = append(ratios, p.total().Seconds()/d.total().Seconds())
		}
		perPod := func(of []spell) float64 {
			return middle(of, func(s spell) float64 { return s.place.Seconds() * 1000 / pods })
		}
		perSecond := func(of []spell) float64 {
			return middle(of, func(s spell) float64 { return pods / s.total().Seconds() })
		}
		slices.Sort(ratios)
		fmt.Printf("%d %d %.1f %.1f %.3f %.0f %.2f %.2f\n", n, pods, perSecond(device), perSecond(cpu), ratios[turns/2],
			middle(cpu, func(s spell) float64 { return s.open.Seconds() * 1000 }), perPod(device), perPod(cpu))
	}
}

// pair takes one turn of each kind. Every second time the second kind comes first: a machine that
// slows down, or a heap that grows, must not count against one of them.
func pair(i int, first, second func() spell) (spell, spell) {
	if i%2 == 0 {
		a := first()
		return a, second()
	}
	b := second()
	return first(), b
}

// middle is the median of a number of each spell.
func middle(of []spell, number func(spell) float64) float64 {
	var all []float64
	for _, s := range of {
		all = append(all, number(s))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// TestScaleMemory prints what the scheduler alone holds in memory of a full cluster, and how long
// a session takes to open in which nothing has changed. It must run in a process of its own. It is
// part of `make scale`.
func TestScaleMemory(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("DEVICESHARE_SCALE_MEMORY"))
	if n == 0 {
		t.Skip("takes minutes: make scale")
	}
	objects := inhabited(t, n)
	before := heapMiB()
	c := newCyclesOver(t, objects...)
	objects = nil
	var opened, whole []time.Duration
	for range 7 {
		spent := c.opening()
		begin := time.Now()
		ssn := c.open()
		whole = append(whole, time.Since(begin))
		framework.CloseSession(ssn)
		opened = append(opened, c.opening()-spent)
	}
	first := opened[0]
	slices.Sort(opened)
	slices.Sort(whole)
	after := heapMiB()
	fmt.Printf("%d nodes, %d pods: heap %d MiB, of which %d MiB are what the fake API server keeps; peak RSS %s\n",
		n, n*perNode, after, before, statusLine(t, "VmHWM"))
	fmt.Printf("the plugin's part of opening a session: first %v, unchanged %v (least %v); all of opening %v\n",
		first.Round(time.Microsecond), opened[len(opened)/2].Round(time.Microsecond), opened[0].Round(time.Microsecond), whole[len(whole)/2].Round(time.Millisecond))
	runtime.KeepAlive(c)
}

// perNode is how many pods with devices each node of an inhabited cluster has.
const perNode = 16

// inhabited is a cluster whose nodes have 16 pods each, in jobs of 100.
func inhabited(t *testing.T, n int) []apiruntime.Object {
	t.Helper()
	objects := traceNodes(t, uniform(n))
	group := ""
	for i := range n * perNode {
		if i%100 == 0 {
			group = fmt.Sprintf("g%d", i/100)
			objects = append(objects, groupOf(group, 100))
		}
		node := fmt.Sprintf("n%05d", i/perNode)
		pod := podOf(fmt.Sprintf("pod-%d", i), group, asks{number: 1, memory: 4096, cores: 25})
		objects = append(objects, runningOn(t, pod, node, share(sharing.DeviceID(fmt.Sprintf("GPU-%s-%d", node, i%8)), 4096)))
	}
	return objects
}

// opening is how long the plugin has spent on opening sessions.
func (c *cycles) opening() time.Duration {
	c.t.Helper()
	var m dto.Metric
	if err := c.store.metrics.SessionOpen.Write(&m); err != nil {
		c.t.Fatal(err)
	}
	return time.Duration(m.GetHistogram().GetSampleSum() * float64(time.Second))
}

// heapMiB is what is in use of the heap once garbage is collected.
func heapMiB() uint64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse >> 20
}

// statusLine reads a line of what the kernel says of this process.
func statusLine(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// A cycle that fills every device places all pods, and no share twice, whatever is remembered
// between them. Pods without devices come in between.
func TestACycleThatFillsEveryDeviceGivesNoShareTwice(t *testing.T) {
	const nodes = 12
	c := newCycles(t, uniform(nodes))
	filling := slices.Concat(
		slices.Repeat([]trace.Pod{{CPU: 100, Memory: 128, Devices: 1, Share: 500}}, nodes*8),
		withoutDevices(60),
		slices.Repeat([]trace.Pod{{CPU: 100, Memory: 128, Devices: 1, Share: 250}}, nodes*16),
	)
	given := 0
	for part := range slices.Chunk(filling, 100) {
		given += c.place(part)
	}
	if given != nodes*8*1000 || c.refused > 0 {
		t.Errorf("%d thousandths of %d devices are given, %d pods found no room", given, nodes*8, c.refused)
	}
	held := map[sharing.DeviceID]int64{}
	for name, b := range c.bindings {
		text, asked := b.Annotations[wire.PodPlacement]
		if !asked {
			continue
		}
		p, err := wire.DecodePlacement(text)
		if err != nil {
			t.Fatalf("pod %s: %v", name, err)
		}
		for _, s := range p.Containers[0].Shares {
			held[s.Device] += s.Memory.WholeMiB()
		}
	}
	for id, memory := range held {
		if memory > 16384 {
			t.Errorf("of device %s %d MiB are given, and it has 16384", id, memory)
		}
	}
	if len(held) != nodes*8 {
		t.Errorf("%d devices are in use of %d", len(held), nodes*8)
	}
}
