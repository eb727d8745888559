// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"deviceshare/deviceplugin/cluster"
	"deviceshare/sharing/wire"
)

func placed(annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid", Annotations: annotations}}
}

func TestOnlyPodsOfLegacySchedulersWithoutAReceiptAreDue(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		due         bool
	}{
		"the legacy scheduler":            {map[string]string{wire.PodAssigned: "x", wire.PodBindPhase: wire.PhaseAllocating}, true},
		"the legacy scheduler, confirmed": {map[string]string{wire.PodAssigned: "x", wire.PodBindPhase: wire.PhaseSuccess}, false},
		"our scheduler":                   {map[string]string{wire.PodAssigned: "x", wire.PodPlacement: "{}", wire.PodBindPhase: wire.PhaseAllocating}, false},
		"no scheduler":                    {nil, false},
	} {
		if got := needsReceipt(placed(tc.annotations)); got != tc.due {
			t.Errorf("%s: due %v", name, got)
		}
	}
}

func TestAReceiptFreesTheNodeAndConfirmsThePod(t *testing.T) {
	pod := placed(map[string]string{wire.PodAssigned: "x", wire.PodToAllocate: "x", wire.PodBindPhase: wire.PhaseAllocating, wire.PodBindTime: "1767225601", "other": "stays"})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{wire.NodeLock: "2026-01-01T00:00:00Z", "other": "stays"}}}
	api := fake.NewClientset(pod, node)
	w := NewReceiptWriter(api, "n")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.Run(ctx) }()
	w.Prepared(pod)
	deadline := time.Now().Add(10 * time.Minute)
	for {
		p, err := api.CoreV1().Pods("ns").Get(ctx, "p", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n, err := api.CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, locked := n.Annotations[wire.NodeLock]
		a := p.Annotations
		if a[wire.PodBindPhase] == wire.PhaseSuccess && a[wire.PodTime] == "18446744073709551615" && a[wire.PodToAllocate] == "" &&
			a[wire.PodAssigned] == "x" && a["other"] == "stays" && !locked && n.Annotations["other"] == "stays" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the pod has %v, the node %v", a, n.Annotations)
		}
		time.Sleep(2 * time.Millisecond)
	}
	cancel()
	<-ended
}

func receiptOf(name, bound string) receipt {
	return receipt{cluster.PodKey{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}, UID: "uid"}, bound}
}

func TestAPodThatIsGoneNeedsNoReceipt(t *testing.T) {
	api := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	if err := NewReceiptWriter(api, "n").writeReceipt(context.Background(), receiptOf("gone", "")); err != nil {
		t.Error(err)
	}
}

func TestALockIsThatOfThePodItWasTakenForJustBefore(t *testing.T) {
	const bound = "1767225600" // 2026-01-01T00:00:00Z
	cases := map[string]struct {
		lock, bound string
		want        bool
	}{
		"in the same second":                  {"2026-01-01T00:00:00Z", bound, true},
		"in the zone of the scheduler":        {"2026-01-01T01:59:59+02:00", bound, true},
		"some seconds before":                 {"2025-12-31T23:59:30Z", bound, true},
		"after it, for another pod":           {"2026-01-01T00:00:01Z", bound, false},
		"long before, for one that got stuck": {"2025-12-31T23:58:00Z", bound, false},
		"no lock":                             {"", bound, false},
		"a lock that is no time":              {"locked", bound, false},
		"a pod that does not say when":        {"2026-01-01T00:00:00Z", "", false},
		"a pod with the sign for done":        {"2026-01-01T00:00:00Z", "18446744073709551615", false},
	}
	for name, c := range cases {
		if got := lockIsOf(c.lock, c.bound); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestTheLockOfAnotherPodStays(t *testing.T) {
	const ours, other = "2026-01-01T00:00:00Z", "2026-01-01T00:00:07Z"
	held := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{wire.NodeLock: ours}}}
	api := fake.NewClientset(held)
	w := NewReceiptWriter(api, "n")
	// Between the look and the write the lock expires and another pod gets its own.
	api.PrependReactor("patch", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		taken := held.DeepCopy()
		taken.Annotations[wire.NodeLock] = other
		return false, nil, api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), taken, "")
	})
	p := receiptOf("p", "1767225600")
	if err := w.unlockNode(context.Background(), p); err == nil {
		t.Error("nobody noticed that the lock is another one")
	}
	if err := w.unlockNode(context.Background(), p); err != nil {
		t.Errorf("the next look: %v", err)
	}
	n, err := api.CoreV1().Nodes().Get(context.Background(), "n", metav1.GetOptions{})
	if err != nil || n.Annotations[wire.NodeLock] != other {
		t.Errorf("the node has %v, %v", n.Annotations, err)
	}
}
