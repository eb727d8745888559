// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"deviceshare/plugins/deviceshare/drain"
)

// The device plugin has left the node by then: it has no capacity any more, and Volcano leaves such
// a node out of its sessions.
func TestPodsLeaveANodeWhoseDriverIsReplaced(t *testing.T) {
	owned := func(p *corev1.Pod) *corev1.Pod {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: ptr.To(true)}}
		return p
	}
	l := newLab(t, nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 2, 10000)), groupOf("web", 0),
		owned(on(t, "a", "web", "n1", 0, 0)), owned(on(t, "b", "web", "n2", 0, 0)), on(t, "bare", "web", "n1", 1, 0))
	l.store.drain = drain.New(l, l.report, true)
	t.Cleanup(l.store.drain.Close)
	l.tick()
	if got := l.evictions(); len(got) > 0 {
		t.Fatalf("evicted %q before anybody asked", got)
	}
	emptied := nodeOf(t, devices("n1", 2, 10000))
	emptied.Labels = map[string]string{"nvidia.com/gpu-driver-upgrade-state": "pod-restart-required"}
	emptied.Spec.Unschedulable = true
	emptied.Status.Allocatable, emptied.Status.Capacity = nil, nil
	l.publish(emptied)
	l.eventually("the node is seen", func() bool {
		n, err := l.cache.SharedInformerFactory().Core().V1().Nodes().Lister().Get("n1")
		return err == nil && n.Spec.Unschedulable
	})
	l.eventually("the pod with a controller leaves", func() bool { l.tick(); return len(l.evictions()) > 0 })
	l.tick()
	if got, want := l.evictions(), []string{"a"}; !slices.Equal(got, want) {
		t.Errorf("evicted %q, want %q", got, want)
	}
}
