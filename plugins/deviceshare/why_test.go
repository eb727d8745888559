// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"maps"
	"math/rand"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/waiting"
	"deviceshare/plugins/deviceshare/waiting/news"
	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// `kubectl deviceshare why` has no opinion of its own: whatever keeps a pod waiting, it shows what
// the scheduler wrote.
func TestWhyShowsTheSchedulersSentence(t *testing.T) {
	cases := heldBackCases()
	for _, more := range []map[string]waitCase{unreadableCases(), gangCases(), nodeCases(), quotaCases(), neighbourCases()} {
		maps.Copy(cases, more)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := c.build(t)
			w.explained()
			said := w.status.message(c.pod)
			pod, err := w.client.CoreV1().Pods("ns").Get(t.Context(), c.pod, metav1.GetOptions{})
			if err != nil || said == "" {
				t.Fatalf("the pod is told %q: %v", said, err)
			}
			pod = pod.DeepCopy()
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: said}}
			s := &capture.State{}
			s.Add(pod)
			why, _ := view.Read(s, factory.New()).Why("ns", c.pod)
			if want := "ns/" + c.pod + " waits, the scheduler says: " + said; why.Answer != want || why.Scheduler != said {
				t.Errorf("why says %+v, want %q", why, want)
			}
		})
	}
}

// quotaCases are pods for which a queue has too few devices left.
func quotaCases() map[string]waitCase {
	two := []asks{{number: 1, memory: 100}, {number: 1, memory: 100}}
	always := corev1.ContainerRestartPolicyAlways
	narrow := func(t *testing.T, edit func(*corev1.Pod)) *world {
		pod := podOf("p", "g", two...)
		edit(pod)
		w := newWorld(t, small(t, "n1", 2), groupIn("narrow", "g", 1), pod)
		w.cache.AddQueueV1beta1(queueBelow(t, "narrow", "", "number=1"))
		return w
	}
	const tooMany = `queue "narrow" uses 0 of 1 volcano.sh/vgpu-number: 2 more is 1 too much`
	return map[string]waitCase{
		"a sidecar adds to its pod's devices": {
			cause: news.Quota, pod: "p", want: []string{tooMany},
			build: func(t *testing.T) *world {
				return narrow(t, func(p *corev1.Pod) {
					p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers[:1:1], p.Spec.Containers[1:]
					p.Spec.InitContainers[0].RestartPolicy = &always
				})
			},
		},
		"an init container needs more than those after it": {
			cause: news.Quota, pod: "p", want: []string{tooMany},
			build: func(t *testing.T) *world {
				return narrow(t, func(p *corev1.Pod) {
					p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers[:1:1], p.Spec.Containers[1:]
					p.Spec.InitContainers[0].Resources = corev1.ResourceRequirements{Limits: asks{number: 2, memory: 100}.list(), Requests: asks{number: 2, memory: 100}.list()}
				})
			},
		},
		"the queue above has none left": {
			cause: news.Quota, pod: "p", want: []string{`queue "org" uses 0 of 1 volcano.sh/vgpu-number: 2 more is 1 too much`},
			build: func(t *testing.T) *world {
				w := newWorld(t, small(t, "n1", 2), groupIn("team", "g", 1), podOf("p", "g", two...))
				w.cache.AddQueueV1beta1(queueBelow(t, "org", "", "number=1"))
				w.cache.AddQueueV1beta1(queueBelow(t, "team", "org", ""))
				return w
			},
		},
	}
}

// A pod must not be told to give up a node on which it would fit once others have left.
func TestANodeThatRefusesEvenWithNoOtherPodRefusesWithoutItsPods(t *testing.T) {
	hopeless, others := 0, 0
	for seed := range int64(500) {
		r := rand.New(rand.NewSource(seed))
		cluster, ask := randomCluster(t, r), randomAsk(r)
		full, empty := make([]*api.NodeInfo, 0, len(cluster)), make([]*api.NodeInfo, 0, len(cluster))
		for _, n := range cluster {
			full, empty = append(full, infoOf(n.node, n.pods)), append(empty, infoOf(n.node, nil))
		}
		before, after, task := bare(t, full...), bare(t, empty...), api.NewTaskInfo(ask)
		if before.prePredicate(task) != nil || after.prePredicate(task) != nil {
			continue
		}
		for i := range full {
			err := before.predicate(task, full[i])
			switch {
			case err == nil:
			case !strings.Contains(err.Error(), waiting.EvenEmpty):
				others++
			default:
				hopeless++
				if alone := after.predicate(task, empty[i]); alone == nil {
					t.Errorf("seed %d: %v, and it fits the empty node", seed, err)
				}
			}
		}
	}
	if hopeless < 50 || others < 100 {
		t.Errorf("%d nodes refuse even empty, %d refuse as they are: too few to compare", hopeless, others)
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
