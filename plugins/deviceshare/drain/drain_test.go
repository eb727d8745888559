// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/leader"
	"deviceshare/sharing"
)

const stateLabel = "nvidia.com/gpu-driver-upgrade-state"

// bench is a Drain over a fake API server, which evicts whom no budget needs.
type bench struct {
	t      *testing.T
	client *fake.Clientset
	from   informers.SharedInformerFactory
	d      *Drain
	// drained are devices that people drain.
	drained []nodes.DrainedDevice

	mu      sync.Mutex
	needed  map[string]bool // by a budget
	told    []string
	evicted []string
}

func newBench(t *testing.T, objects ...runtime.Object) *bench {
	t.Helper()
	b := &bench{t: t, client: fake.NewClientset(objects...), needed: map[string]bool{}}
	b.client.PrependReactor("create", "pods", b.answerEviction)
	b.from = informers.NewSharedInformerFactory(b.client, 0)
	b.from.Core().V1().Nodes().Informer()
	b.from.Core().V1().Pods().Informer()
	b.from.Start(t.Context().Done())
	b.from.WaitForCacheSync(t.Context().Done())
	b.d = New(leader.Sole{}, b, true)
	t.Cleanup(b.d.Close)
	return b
}

func (b *bench) answerEviction(action k8stesting.Action) (bool, runtime.Object, error) {
	eviction := action.(k8stesting.CreateAction).GetObject().(*policyv1.Eviction)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.needed[eviction.Name] {
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "the budget needs 1"}}
		return true, nil, err
	}
	b.evicted = append(b.evicted, eviction.Name)
	return true, nil, b.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ns", eviction.Name)
}

func (b *bench) Report(o *corev1.ObjectReference, reason, message string) { b.Tell(o, reason, message) }

func (b *bench) Tell(o *corev1.ObjectReference, reason, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, fmt.Sprintf("%s %s: %s", o.Name, reason, message))
}

// look looks, and looks again until what it does is true.
func (b *bench) look(what string, isSo func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		b.d.Look(b.client, b.from, func(p *corev1.Pod) bool { return p.Annotations["devices"] != "" }, b.drained)
		b.mu.Lock()
		so := isSo()
		b.mu.Unlock()
		if so {
			return
		}
	}
	b.t.Fatalf("waited for ever: %s; evicted %q, told %q", what, b.evicted, b.told)
}

// change writes a node or a pod, and returns when the informers have it.
func (b *bench) change(n *corev1.Node) {
	b.t.Helper()
	if _, err := b.client.CoreV1().Nodes().Update(b.t.Context(), n, metav1.UpdateOptions{}); err != nil {
		b.t.Fatal(err)
	}
	b.look("the node is seen", func() bool {
		got, err := b.from.Core().V1().Nodes().Lister().Get(n.Name)
		return err == nil && got.Labels[stateLabel] == n.Labels[stateLabel] && got.Spec.Unschedulable == n.Spec.Unschedulable
	})
}

// pod returns a pod as the API server has it.
func (b *bench) pod(name string) *corev1.Pod {
	b.t.Helper()
	p, err := b.client.CoreV1().Pods("ns").Get(b.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

func nodeIn(name, state string, cordoned bool) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{stateLabel: state}}, Spec: corev1.NodeSpec{Unschedulable: cordoned}}
}

// holder is a pod with devices of a controller.
func holder(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{"devices": "yes"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func changed(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod { change(p); return p }

func TestOnlyPodsWithDevicesOfANodeThatTheOperatorEmptiesAreEvicted(t *testing.T) {
	b := newBench(t, nodeIn("n1", "pod-restart-required", true), nodeIn("n2", "pod-restart-required", false), nodeIn("n3", "wait-for-jobs-required", true), nodeIn("n4", "", true),
		holder("a", "n1"), holder("other", "n2"), holder("job", "n3"), holder("cordoned", "n4"),
		changed(holder("cpu", "n1"), func(p *corev1.Pod) { p.Annotations = nil }))
	b.look("a is evicted", func() bool { return len(b.evicted) > 0 && len(b.told) > 0 })
	b.d.Look(b.client, b.from, func(*corev1.Pod) bool { return true }, nil)
	if want := []string{"a"}; !slices.Equal(b.evicted, want) {
		t.Errorf("evicted %q, want %q", b.evicted, want)
	}
	const why = "a DriverUpgrade: NVIDIA's GPU operator replaces the driver of node n1, of which this pod holds devices"
	if !slices.Equal(b.told, []string{why}) {
		t.Errorf("told %q", b.told)
	}
}

func TestWhatStaysIsToldOnTheNodeOncePerChange(t *testing.T) {
	now := metav1.Now()
	b := newBench(t, nodeIn("n1", "drain-required", true), holder("guarded", "n1"),
		changed(holder("bare", "n1"), func(p *corev1.Pod) { p.OwnerReferences = nil }),
		changed(holder("spared", "n1"), func(p *corev1.Pod) {
			p.Labels = map[string]string{"nvidia.com/gpu-driver-upgrade-drain.skip": "true"}
		}),
		changed(holder("static", "n1"), func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "hash" }),
		changed(holder("over", "n1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded; p.OwnerReferences = nil }),
		changed(holder("ending", "n1"), func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers, p.OwnerReferences = &now, []string{"x/y"}, nil
		}))
	b.needed["guarded"] = true
	const others = "the driver of this node cannot be replaced before these pods have left: ns/bare (no controller would make it again: delete it yourself), " +
		"ns/spared (its label nvidia.com/gpu-driver-upgrade-drain.skip spares it), ns/static (the kubelet makes it from a file: take that off the node)"
	const all = others + ", ns/guarded (the budget needs 1)"
	b.look("the budget is told", func() bool { return len(b.told) == 2 })
	for i, want := range []string{others, all} {
		if want = "n1 GPUDriverUpgradeHeldUp: " + want; b.told[i] != want {
			t.Errorf("told %q, want %q", b.told[i], want)
		}
	}
	b.mu.Lock()
	b.needed["guarded"] = false
	b.mu.Unlock()
	b.look("the pod that the budget needed is evicted", func() bool { return len(b.evicted) == 1 })
	if b.evicted[0] != "guarded" {
		t.Errorf("evicted %q", b.evicted)
	}
}

func TestNobodyIsEvictedWhenTheOperatorIsDone(t *testing.T) {
	b := newBench(t, nodeIn("n1", "pod-deletion-required", true), holder("guarded", "n1"))
	b.needed["guarded"] = true
	b.look("it was tried", func() bool { return b.d.evictor.Obstacle("uid-guarded") != nil })
	b.change(nodeIn("n1", "uncordon-required", true))
	b.mu.Lock()
	b.needed["guarded"] = false
	b.mu.Unlock()
	b.look("the order is dropped", func() bool { return b.d.evictor.Obstacle("uid-guarded") == nil })
	if len(b.evicted) > 0 {
		t.Errorf("evicted %q", b.evicted)
	}
}

// However states follow each other, exactly those are evicted who had devices of a node while it
// was closed to others and to be emptied.
func TestInAnyOrderOfStatesOnlyThoseLeaveWhoHaveTo(t *testing.T) {
	states := []string{"", "upgrade-required", "cordon-required", "wait-for-jobs-required", "pod-deletion-required", "drain-required", "pod-restart-required", "validation-required", "upgrade-failed", "what-is-this"}
	empties := map[string]bool{"pod-deletion-required": true, "drain-required": true, "pod-restart-required": true}
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 7))
		var objects []runtime.Object
		for n := range 3 {
			objects = append(objects, nodeIn(fmt.Sprint("n", n), "", false))
		}
		for p := range 12 {
			pod := holder(fmt.Sprint("p", p), fmt.Sprint("n", p%3))
			if random.IntN(4) == 0 {
				pod.Annotations = nil
			}
			if random.IntN(4) == 0 {
				pod.OwnerReferences = nil
			}
			objects = append(objects, pod)
		}
		b, want := newBench(t, objects...), map[string]bool{}
		for range 8 {
			n := nodeIn(fmt.Sprint("n", random.IntN(3)), states[random.IntN(len(states))], random.IntN(3) > 0)
			if n.Spec.Unschedulable && empties[n.Labels[stateLabel]] {
				for _, o := range objects {
					if p, is := o.(*corev1.Pod); is && p.Spec.NodeName == n.Name && p.Annotations != nil && p.OwnerReferences != nil {
						want[p.Name] = true
					}
				}
			}
			b.change(n)
			b.look("all who have to are evicted", func() bool { return len(b.evicted) == len(want) })
		}
		for _, name := range b.evicted {
			if !want[name] {
				t.Errorf("seed %d: %s is evicted", seed, name)
			}
		}
		for _, text := range b.told {
			if strings.Contains(text, "%!") {
				t.Errorf("told %q", text)
			}
		}
	}
}

// drainedOn is a device of a node that people drain, with these pods on it.
func drainedOn(node string, index int, c sharing.Cordon, holders ...*corev1.Pod) nodes.DrainedDevice {
	c.Drains = true
	d := &sharing.Device{ID: sharing.DeviceID(fmt.Sprint("GPU-", node, "-", index)), Index: index, Cordon: &c}
	return nodes.DrainedDevice{Node: nodeIn(node, "", false), Device: d, Occupants: nodes.Occupants{Holders: holders}}
}

func TestPodsLeaveADeviceThatPeopleDrainAndNoOther(t *testing.T) {
	a, guarded, bare := holder("a", "n1"), holder("guarded", "n1"), changed(holder("bare", "n1"), func(p *corev1.Pod) { p.OwnerReferences = nil })
	spared := changed(holder("spared", "n1"), func(p *corev1.Pod) {
		p.Labels = map[string]string{"nvidia.com/gpu-driver-upgrade-drain.skip": "true"} // which is about drivers
	})
	unknown := holder("unknown", "n1")
	b := newBench(t, nodeIn("n1", "", false), a, guarded, bare, spared, unknown, holder("other", "n1"))
	b.needed["guarded"] = true
	b.drained = []nodes.DrainedDevice{drainedOn("n1", 3, sharing.Cordon{By: "carol", Reason: "fan"}, a, guarded, bare, spared)}
	b.drained[0].Unknown = []*corev1.Pod{unknown}
	const stay = "device 3 (GPU-n1-3) of this node is not drained before these pods have left: ns/bare (no controller would make it again: delete it yourself), " +
		"ns/unknown (it cannot be read which devices it has: delete it yourself, or repair it)"
	want := []string{
		"a DeviceDrained: device 3 of node n1, of which this pod has a share, is drained by carol: fan",
		"n1 GPUDrainHeldUp: " + stay,
		"n1 GPUDrainHeldUp: " + stay + ", ns/guarded (the budget needs 1)",
		"spared DeviceDrained: device 3 of node n1, of which this pod has a share, is drained by carol: fan",
	}
	b.look("all is told", func() bool { return len(b.told) == len(want) })
	if slices.Sort(b.told); !slices.Equal(b.told, want) {
		t.Errorf("told %q\nwant %q", b.told, want)
	}
	if slices.Sort(b.evicted); !slices.Equal(b.evicted, []string{"a", "spared"}) {
		t.Errorf("evicted %q", b.evicted)
	}
	b.drained = nil
	b.look("the order is dropped", func() bool { return b.d.evictor.Obstacle("uid-guarded") == nil })
	b.mu.Lock()
	b.needed["guarded"] = false
	b.mu.Unlock()
	b.drained = []nodes.DrainedDevice{drainedOn("n1", 2, sharing.Cordon{}, b.pod("other"))}
	b.look("the pod of another device leaves", func() bool { return len(b.evicted) == 3 && len(b.told) == len(want)+1 })
	if got := b.told[len(want)]; got != "other DeviceDrained: device 2 of node n1, of which this pod has a share, is drained" {
		t.Errorf("told %q", got)
	}
	if b.evicted[2] != "other" {
		t.Errorf("evicted %q", b.evicted)
	}
}

func TestDriversAreReplacedWithoutUsWhereNobodyAskedForIt(t *testing.T) {
	a, other := holder("a", "n1"), holder("other", "n2")
	b := newBench(t, nodeIn("n1", "pod-restart-required", true), nodeIn("n2", "", false), a, other)
	b.d = New(leader.Sole{}, b, false)
	t.Cleanup(b.d.Close)
	b.drained = []nodes.DrainedDevice{drainedOn("n2", 0, sharing.Cordon{}, other)}
	b.look("the drained device is empty", func() bool { return len(b.evicted) > 0 })
	if !slices.Equal(b.evicted, []string{"other"}) {
		t.Errorf("evicted %q", b.evicted)
	}
}
