// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// amounts is a list of resources by their short names.
func amounts(of map[string]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, amount := range of {
		list[corev1.ResourceName("volcano.sh/vgpu-"+name)] = resource.MustParse(amount)
	}
	return list
}

func queueOf(name, parent string, capability, allocated map[string]string) *schedulingv1beta1.Queue {
	q := &schedulingv1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	q.Spec.Parent, q.Spec.Capability = parent, amounts(capability)
	q.Status.State, q.Status.Allocated = schedulingv1beta1.QueueStateOpen, amounts(allocated)
	return q
}

func TestAmountsOfQueuesHaveUnitsForPeopleAndNoneForPrograms(t *testing.T) {
	s := stateOf(t, queueOf("team", "", map[string]string{"memory": "120k", "memory.a100": "81920", "cores": "400", "number": "16"}, map[string]string{"memory": "1000"}))
	queues := view.Read(s, factory.New()).Queues()
	text := view.QueuesText(queues, view.Paint{})
	for _, want := range []string{"117.2 GiB", "80 GiB", "1000 MiB", "400%", " 16 "} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	for _, q := range queues {
		if q.Resource == "volcano.sh/vgpu-memory" && (q.Quota != "120k" || q.Used != "1k") {
			t.Errorf("a program reads %+v", q)
		}
	}
}

// Seven partitions of an A100 leave memory that no pod can get.
func TestWhatNoPodCanGetOfADeviceIsNotFree(t *testing.T) {
	share := func(mode sharing.Mode, memory sharing.Bytes, cores sharing.Percent, part sharing.Partition) sharing.Share {
		return sharing.Share{Device: "GPU-0", Mode: mode, Memory: memory, Cores: cores, Partition: part}
	}
	small := func(i int) sharing.Share {
		return share(sharing.MIG, 4864*sharing.MiB, 14, sharing.Partition{Profile: "1g.5gb", Start: i, Size: 1, Geometry: "free", Position: i})
	}
	full := make([]sharing.Share, 0, 7)
	for i := range 7 {
		full = append(full, small(i))
	}
	for name, c := range map[string]struct {
		mode   sharing.Mode
		shares []sharing.Share
		least  sharing.Bytes
		most   sharing.Bytes
	}{
		"an empty device in partitions":     {sharing.MIG, nil, 38 << 30, 40 << 30},
		"a full one":                        {sharing.MIG, full, 0, 0},
		"one with one partition left":       {sharing.MIG, full[:6], 4 << 30, 10 << 30},
		"one that a container holds alone":  {sharing.HAMiCore, []sharing.Share{share(sharing.HAMiCore, 10<<30, 100, sharing.Partition{})}, 0, 0},
		"one that is shared":                {sharing.HAMiCore, []sharing.Share{share(sharing.HAMiCore, 10<<30, 30, sharing.Partition{})}, 30 << 30, 30 << 30},
		"one with shares of another mode":   {sharing.HAMiCore, []sharing.Share{share(sharing.MPS, 10<<30, 30, sharing.Partition{})}, 0, 0},
		"one with as many shares as it may": {sharing.HAMiCore, slicesOf(10, share(sharing.HAMiCore, 1<<30, 0, sharing.Partition{})), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c2 := clusterOf(t, c.mode, c.shares)
			free := sharing.Bytes(c2.Status().Models[0].MemoryFree)
			if free < c.least || free > c.most {
				t.Errorf("%v are free, want %v to %v", free, c.least, c.most)
			}
			cards, _ := view.Cards(c2.Devices(""), view.Filter{Condition: view.HasRoom}, 0, 1)
			if hasRoom := len(cards) > 0; hasRoom != (c.most > 0) {
				t.Errorf("the page finds the node among those with room: %t", hasRoom)
			}
		})
	}
}

func slicesOf(n int, s sharing.Share) []sharing.Share {
	out := make([]sharing.Share, 0, n)
	for range n {
		out = append(out, s)
	}
	return out
}

// clusterOf is a node with one device and a pod for each share of it.
func clusterOf(t *testing.T, mode sharing.Mode, shares []sharing.Share) *view.Cluster {
	t.Helper()
	node := nodeOf(t, "node", 1)
	d := sharingtest.Device(0, "A100-40", mode)
	annotations, err := wire.NodeAnnotations(sharing.Inventory{Node: "node", Devices: []sharing.Device{d}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	node.Annotations = annotations
	s := &capture.State{}
	s.Add(node)
	for i, share := range shares {
		p := podOf(strings.Repeat("x", i+1), 1)
		p.Spec.NodeName, p.Status.Phase = "node", corev1.PodRunning
		text, err := wire.EncodePlacement(sharing.Placement{Node: "node", Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{share}}}})
		if err != nil {
			t.Fatal(err)
		}
		p.Annotations = map[string]string{wire.PodPlacement: text}
		s.Add(p)
	}
	return view.Read(s, factory.New())
}
