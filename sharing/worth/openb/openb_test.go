// SPDX-License-Identifier: Apache-2.0

package openb_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"deviceshare/sharing/sharingtest/trace"
)

// run places arrivals and returns the devices allocated, in percent of all.
func run(rule trace.Rule, nodes []trace.Node, arrivals []trace.Pod) float64 {
	given := 0
	for i := range arrivals {
		if rule.Take(&arrivals[i]) {
			given += arrivals[i].Asked()
		}
	}
	return 100 * float64(given) / float64(trace.Capacity(nodes))
}

// rules makes the ways to place that are compared.
func rules(t testing.TB) []struct {
	name string
	make func([]trace.Node, []trace.Pod) trace.Rule
} {
	return []struct {
		name string
		make func([]trace.Node, []trace.Pod) trace.Rule
	}{
		{"first-fit", func(n []trace.Node, _ []trace.Pod) trace.Rule { return trace.NewFirstFit(n) }},
		{"fgd", trace.NewFGD},
		{"fragmentation", func(n []trace.Node, _ []trace.Pod) trace.Rule { return newCluster(t, n) }},
	}
}

// arrivalsOf are the nodes and pods in the order of a seed.
func arrivalsOf(nodes []trace.Node, pods []trace.Pod, seed uint64) ([]trace.Node, []trace.Pod) {
	r := rand.New(rand.NewPCG(seed, 42))
	return trace.Shuffled(nodes, r), trace.Arrivals(pods, trace.Capacity(nodes), r)
}

// seeds runs every rule on the same arrivals of some seeds, and returns the results by rule.
func seeds(t testing.TB, nodes []trace.Node, pods []trace.Pod, n uint64) map[string][]float64 {
	out := map[string][]float64{}
	for seed := range n {
		order, arrivals := arrivalsOf(nodes, pods, seed)
		for _, rule := range rules(t) {
			out[rule.name] = append(out[rule.name], run(rule.make(order, pods), nodes, arrivals))
		}
	}
	return out
}

func TestFragmentationPlacesMoreThanTheOthersOnASmallCluster(t *testing.T) {
	nodes, pods := trace.Small()
	got := seeds(t, nodes, pods, 6)
	ours, _ := trace.Mean(got["fragmentation"])
	for _, name := range []string{"first-fit", "fgd"} {
		if other, _ := trace.Mean(got[name]); ours <= other {
			t.Errorf("fragmentation allocates %.2f %%, %s %.2f %%", ours, name, other)
		}
	}
}

// TestOpenb prints the table of docs/benchmarks.md from the folder of a trace. It is `make openb`.
func TestOpenb(t *testing.T) {
	dir := os.Getenv("DEVICESHARE_OPENB")
	if dir == "" {
		t.Skip("needs the trace: make openb DATA=DIR")
	}
	n := uint64(10)
	if text := os.Getenv("DEVICESHARE_OPENB_SEEDS"); text != "" {
		n, _ = strconv.ParseUint(text, 10, 32)
	}
	nodes, workloads, err := trace.Load(dir, os.Getenv("DEVICESHARE_OPENB_ONLY"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range workloads {
		got := seeds(t, nodes, w.Pods, n)
		for _, rule := range rules(t) {
			mean, sd := trace.Mean(got[rule.name])
			fmt.Printf("%s %s %.2f %.2f\n", w.Name, rule.name, mean, sd)
		}
		printMoves(t, nodes, w, n)
	}
}
