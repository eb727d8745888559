// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// What `kubectl deviceshare why` says of each node must be what the scheduler's predicate says of
// it. Both ask package place; this test compares all that leads there: which pods count, what of
// their annotations counts, which nodes serve, how the request is read.
func TestWhySaysOfEachNodeWhatThePredicateSays(t *testing.T) {
	fits, refused, unusable, unread := 0, 0, 0, 0
	for seed := range int64(500) {
		r := rand.New(rand.NewSource(seed))
		cluster := randomCluster(t, r)
		ask := randomAsk(r)
		said := whyOf(t, cluster, ask)
		infos := make([]*api.NodeInfo, 0, len(cluster))
		for _, n := range cluster {
			infos = append(infos, infoOf(n.node, n.pods))
		}
		p := bare(t, infos...)
		task := api.NewTaskInfo(ask)
		if err := p.prePredicate(task); err != nil {
			unread++
			if len(said.Nodes) > 0 || !strings.Contains(said.Answer, "cannot be read") {
				t.Errorf("seed %d: the scheduler says %q, why says %q", seed, err, said.Answer)
			}
			continue
		}
		verdicts := map[string]view.Verdict{}
		for _, v := range said.Nodes {
			verdicts[v.Node] = v
		}
		for _, info := range infos {
			err, v := p.predicate(task, info), verdicts[info.Name]
			switch {
			case (err == nil) != v.Fits:
				t.Errorf("seed %d: node %s: the scheduler says %v, why says %+v", seed, info.Name, err, v)
			case err == nil:
				fits++
			case v.Node == "":
				t.Errorf("seed %d: why says nothing of node %s, the scheduler says %v", seed, info.Name, err)
			case !strings.Contains(err.Error(), strings.TrimSuffix(v.Reason, " (it would not fit the empty node either)")):
				t.Errorf("seed %d: node %s: the scheduler says %v, why says %q", seed, info.Name, err, v.Reason)
			case len(v.Devices) > 0:
				refused++
			default:
				unusable++
			}
		}
	}
	if fits < 100 || refused < 100 || unusable < 50 || unread < 10 {
		t.Errorf("%d fits, %d refusals, %d nodes not usable, %d requests not read: too few of a kind to compare", fits, refused, unusable, unread)
	}
}

// What fits and what helps must not depend on the policy: why does not know the scheduler's default
// one, its weights, and what it has learned. For which reason a container does not fit beside the
// ones before it may depend on it.
func TestWhySaysThatTheSameFitsAndHelpsUnderEveryPolicy(t *testing.T) {
	fits, refused := 0, 0
	for seed := range int64(500) {
		r := rand.New(rand.NewSource(seed))
		cluster := randomCluster(t, r)
		ask := randomAsk(r)
		want := whyOf(t, cluster, ask)
		for _, v := range want.Nodes {
			if v.Fits {
				fits++
			} else {
				refused++
			}
		}
		for _, name := range policy.Names() {
			ask.Annotations[wire.UserPolicy] = name
			got := whyOf(t, cluster, ask)
			same := slices.EqualFunc(got.Nodes, want.Nodes, func(a, b view.Verdict) bool { return a.Node == b.Node && a.Fits == b.Fits })
			if !same || !slices.Equal(got.Helps, want.Helps) {
				t.Errorf("seed %d: under policy %s why says\n%+v, want\n%+v", seed, name, got, want)
			}
		}
	}
	if fits < 100 || refused < 100 {
		t.Errorf("%d fits, %d refusals: too few of a kind to compare", fits, refused)
	}
}

// occupied is a node with the pods on it.
type occupied struct {
	node *corev1.Node
	pods []*corev1.Pod
}

func randomCluster(t *testing.T, r *rand.Rand) []occupied {
	t.Helper()
	out := make([]occupied, 1+r.Intn(4))
	for i := range out {
		name := fmt.Sprintf("n%d", i)
		inv := sharing.Inventory{Node: name}
		for k := range 1 + r.Intn(4) {
			mode := sharing.Modes()[r.Intn(4)]
			d := sharingtest.Device(k, []string{"A100-40", "A30"}[r.Intn(2)], mode)
			d.ID = sharing.DeviceID(fmt.Sprintf("GPU-%s-%d", name, k))
			d.Healthy = r.Intn(8) > 0
			inv.Devices = append(inv.Devices, d)
		}
		out[i].node = nodeOf(t, inv)
		switch r.Intn(8) {
		case 0:
			out[i].node.Status.Conditions = nil
		case 1:
			delete(out[i].node.Status.Allocatable, wire.ResourceNumber)
		case 2:
			out[i].node.Annotations[wire.NodeInventory] = "{"
		}
		out[i].pods = randomPods(t, r, &inv)
	}
	return out
}

// randomPods hold what place gives them, one after the other; some have texts that cannot be read.
func randomPods(t *testing.T, r *rand.Rand, inv *sharing.Inventory) []*corev1.Pod {
	t.Helper()
	var pods []*corev1.Pod
	for i := range r.Intn(6) {
		d := &inv.Devices[r.Intn(len(inv.Devices))]
		s := sharing.Share{Device: d.ID, Mode: d.Mode, Memory: sharing.MiBs(int64(1000 + r.Intn(9000))), Cores: sharing.Percent(r.Intn(40))}
		if d.Mode == sharing.MIG {
			profile := d.MIG.Profiles[0]
			s.Partition = sharing.Partition{Profile: profile.Name, Start: r.Intn(d.MIG.Slices - 1), Size: 1, Geometry: "group1"}
			s.Partition.Position = s.Partition.Start
		}
		pod := podOf(fmt.Sprintf("%s-%d", inv.Node, i), "g", asks{number: 1, memory: s.Memory.WholeMiB()})
		pod = runningOn(t, pod, inv.Node, s)
		if r.Intn(30) == 0 {
			pod.Annotations[wire.PodPlacement] = "{"
		}
		pods = append(pods, pod)
	}
	return pods
}

func randomAsk(r *rand.Rand) *corev1.Pod {
	containers := make([]asks, 1+r.Intn(2))
	for i := range containers {
		containers[i] = asks{number: int64(1 + r.Intn(2)), memory: int64(r.Intn(4)) * 9000, cores: int64(r.Intn(5)) * 25}
		if r.Intn(20) == 0 {
			containers[i].number = 0
			containers[i].memory = 100
		}
	}
	pod := podOf("ask", "g", containers...)
	if r.Intn(3) == 0 {
		pod.Annotations[wire.UserMode] = []string{"mig", "hami-core", "mps,time-slicing", "nonsense"}[r.Intn(4)]
	}
	return pod
}

func whyOf(t *testing.T, cluster []occupied, ask *corev1.Pod) view.Why {
	t.Helper()
	s := &capture.State{}
	for _, n := range cluster {
		s.Add(n.node)
		for _, p := range n.pods {
			s.Add(p)
		}
	}
	s.Add(ask)
	w, ok := view.Read(s, factory.New()).Why(ask.Namespace, ask.Name)
	if !ok {
		t.Fatal("the pod is not known")
	}
	return w
}
