// SPDX-License-Identifier: Apache-2.0

package receipt

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"deviceshare/sharing/wire"
)

func placed(annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid", Annotations: annotations}}
}

func TestOnlyPodsOfTodaysSchedulerWithoutAReceiptAreDue(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		due         bool
	}{
		"today's scheduler":            {map[string]string{wire.PodAssigned: "x", wire.PodBindPhase: wire.PhaseAllocating}, true},
		"today's scheduler, confirmed": {map[string]string{wire.PodAssigned: "x", wire.PodBindPhase: wire.PhaseSuccess}, false},
		"our scheduler":                {map[string]string{wire.PodAssigned: "x", wire.PodPlacement: "{}", wire.PodBindPhase: wire.PhaseAllocating}, false},
		"no scheduler":                 {nil, false},
	} {
		if got := Due(placed(tc.annotations)); got != tc.due {
			t.Errorf("%s: due %v", name, got)
		}
	}
}

func TestAReceiptFreesTheNodeAndConfirmsThePod(t *testing.T) {
	pod := placed(map[string]string{wire.PodAssigned: "x", wire.PodToAllocate: "x", wire.PodBindPhase: wire.PhaseAllocating, "other": "stays"})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{wire.NodeLock: "2026", "other": "stays"}}}
	api := fake.NewClientset(pod, node)
	w := New(api, "n")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.Run(ctx) }()
	w.Prepared(pod)
	deadline := time.Now().Add(10 * time.Second)
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

func TestAPodThatIsGoneNeedsNoReceipt(t *testing.T) {
	api := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	if err := New(api, "n").write(context.Background(), pod{"ns", "gone", "uid"}); err != nil {
		t.Error(err)
	}
}
