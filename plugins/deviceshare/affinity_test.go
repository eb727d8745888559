// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// cacheLabel is on the node that caches the data of the pod, as Fluid has it.
const cacheLabel = "fluid.io/s-ns-data"

// affinityRow is a row of the table of docs/placement.md: by how many percent of a node, or
// devices, another node must be better to win. 0: it never wins.
type affinityRow struct{ installed, cacheFirst float64 }

// affinityTable reads the rows by their policies, and the weight of the last column.
func affinityTable(t *testing.T) (rows map[string]affinityRow, weight int) {
	t.Helper()
	page, err := os.ReadFile("../../docs/placement.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| policy | installed | with `nodeaffinity.weight: ")
	if weight, err = strconv.Atoi(strings.SplitN(table, "`", 2)[0]); !found || err != nil {
		t.Fatalf("the page has no table of preferred affinity: %v", err)
	}
	rows = map[string]affinityRow{}
	table, _, _ = strings.Cut(table, "\n\n")
	cell := `(?:(\d+) (?:%|devices) \w+(?: \w+)?|wins always)`
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| "+cell+` \| `+cell+` \|$`).FindAllStringSubmatch(table, -1) {
		var r affinityRow
		r.installed, _ = strconv.ParseFloat(m[2], 64)
		r.cacheFirst, _ = strconv.ParseFloat(m[3], 64)
		rows[m[1]] = r
	}
	if len(rows) != 3 {
		t.Fatalf("rows %v, want one for each policy", rows)
	}
	return rows, weight
}

// prefers has a pod prefer the nodes with the label.
func prefers(pod *corev1.Pod, weight int32) *corev1.Pod {
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: weight, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: cacheLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{"true"}}},
		}}},
	}}
	return pod
}

// chosenNode runs the scheduler as it is installed, with this weight of node affinity if it is not
// 0, and returns where the pod goes.
func chosenNode(t *testing.T, weight int, pod *corev1.Pod, objects ...runtime.Object) string {
	t.Helper()
	c := newCyclesOver(t, append(objects, groupOf("new", 1), pod)...)
	for _, tier := range c.tiers {
		for i := range tier.Plugins {
			if p := &tier.Plugins[i]; p.Name == "nodeorder" && weight > 0 {
				p.Arguments["nodeaffinity.weight"] = weight
			}
		}
	}
	ssn := c.open()
	defer framework.CloseSession(ssn)
	c.runActions(ssn)
	return c.task(ssn, pod.Name).NodeName
}

// nodesFilled are the node with the cache and another one, of one device each, used to so many
// percent.
func nodesFilled(t *testing.T, cached, other int64) []runtime.Object {
	t.Helper()
	objects := []runtime.Object{groupOf("old", 1)}
	for name, percent := range map[string]int64{"cached": cached, "other": other} {
		node := nodeOf(t, devices(name, 1, 10000))
		if name == "cached" {
			node.Labels = map[string]string{cacheLabel: "true"}
		}
		objects = append(objects, node)
		if percent > 0 {
			s := share(devices(name, 1, 10000).Devices[0].ID, 100*percent)
			s.Cores = sharing.Percent(percent)
			objects = append(objects, runningOn(t, podOf("on-"+name, "old", asks{number: 1, memory: 100 * percent, cores: percent}), name, s))
		}
	}
	return objects
}

// nodesStranded are nodes like them, and pods from which to learn that a device needs 8 CPUs. The
// node with the cache has no CPU to spare.
func nodesStranded(t *testing.T) []runtime.Object {
	t.Helper()
	objects := lesson(t)
	kept := objects[:0]
	for _, o := range objects {
		n, isNode := o.(*corev1.Node)
		if isNode && !n.Spec.Unschedulable {
			continue
		}
		if isNode { // the pods run here that it learns from: the queue is not to seem full
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, wire.ResourceNumber, wire.ResourceCores} {
				n.Status.Allocatable[name] = resource.MustParse("10000")
			}
		}
		kept = append(kept, o)
	}
	const cards = 24
	for name, cpus := range map[string]int64{"cached": 8 * cards, "other": 1000} {
		node := nodeOf(t, devices(name, cards, 10000))
		if name == "cached" {
			node.Labels = map[string]string{cacheLabel: "true"}
		}
		node.Status.Allocatable[corev1.ResourceCPU] = *resource.NewQuantity(cpus, resource.DecimalSI)
		kept = append(kept, node)
	}
	return kept
}

// costing is a pod with a device that takes, where there is no CPU to spare, that of so many tenths
// of devices more.
func costing(tenths int64) *corev1.Pod {
	pod := podOf("new", "new", asks{number: 1, cores: 100})
	r := &pod.Spec.Containers[0].Resources
	cpus := *resource.NewMilliQuantity(8000+800*tenths, resource.DecimalSI)
	r.Requests[corev1.ResourceCPU], r.Limits[corev1.ResourceCPU] = cpus, cpus
	return pod
}

func TestACacheWinsAsThePageSays(t *testing.T) {
	rows, cacheFirst := affinityTable(t)
	for policy, row := range rows {
		for weight, limit := range map[int]float64{0: row.installed, cacheFirst: row.cacheFirst} {
			differences := map[float64]string{limit - 1: "cached", limit + 1: "other"}
			switch {
			case limit == 0: // 98: as much better as a node can be where the pod fits
				differences = map[float64]string{98: "cached"}
			case policy == "fragmentation":
				differences = map[float64]string{limit - 0.2: "cached", limit + 0.2: "other"}
			}
			for difference, want := range differences {
				if got := chosenBeside(t, policy, weight, difference); got != want {
					t.Errorf("%s, weight %d: beside a node that is better by %v the pod goes to the node %q, want %q", policy, weight, difference, got, want)
				}
			}
		}
	}
}

// chosenBeside returns where a pod goes that prefers the node with the cache, while another one is
// better by so many percent, or devices.
func chosenBeside(t *testing.T, policy string, weight int, difference float64) string {
	t.Helper()
	pod := podOf("new", "new", asks{number: 1, memory: 100})
	pod.Annotations[wire.UserPolicy] = policy
	switch policy {
	case "binpack":
		return chosenNode(t, weight, prefers(pod, 100), nodesFilled(t, 0, int64(difference))...)
	case "spread":
		return chosenNode(t, weight, prefers(pod, 100), nodesFilled(t, int64(difference), 0)...)
	}
	return chosenNode(t, weight, prefers(costing(int64(math.Round(10*difference))), 100), nodesStranded(t)...)
}

// Half the weight, as for a zone, has half the effect.
func TestAZoneWinsHalfAsMuch(t *testing.T) {
	rows, _ := affinityTable(t)
	half := int64(rows["binpack"].installed / 2)
	for better, want := range map[int64]string{half - 1: "cached", half + 1: "other"} {
		pod := podOf("new", "new", asks{number: 1, memory: 100})
		pod.Annotations[wire.UserPolicy] = "binpack"
		if got := chosenNode(t, 0, prefers(pod, 50), nodesFilled(t, 0, better)...); got != want {
			t.Errorf("beside a node that is %d %% fuller the pod goes to the node %q, want %q", better, got, want)
		}
	}
}
