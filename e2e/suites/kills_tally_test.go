// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// plainPod is the label of pods without devices, which show what a kubelet that is killed does to
// any pod.
const plainPod = "plain"

// tally remembers every pod that was ever in a namespace and what became of it. It is safe for
// concurrent use.
type tally struct {
	mu   sync.Mutex
	pods map[types.UID]*fate
}

// fate is what became of one pod.
type fate struct {
	name  string
	owner string // the kind of its controller, "none" for a bare pod, plainPod for one without devices
	phase corev1.PodPhase
	ran   bool // a container of it was seen running
	// refused is why the kubelet did not take it, as its status or an event says; "" if it did.
	refused string
	// broke is what a container of it failed with, cut whether its start was cut off: a container
	// runtime gives up what it does for a kubelet that dies.
	broke string
	cut   bool
	stuck bool // it never ended
}

// failed reports that the pod did not do what it came for.
func (f *fate) failed() bool { return f.phase == corev1.PodFailed || f.stuck }

// why says what became of a pod that failed or was refused.
func (f *fate) why() string {
	text := cmp.Or(f.refused, f.broke, "no word")
	if f.cut && f.refused == "" {
		text = "the kubelet died over a container's start"
	}
	switch {
	case f.stuck:
		text += " (it never ended)"
	case f.phase != corev1.PodFailed:
		text += " (and taken later)"
	case f.ran:
		text += " (after it had run)"
	}
	return text
}

// newTally counts from now until ctx ends.
func newTally(ctx context.Context, t *testing.T, client kubernetes.Interface, namespace string) *tally {
	t.Helper()
	y := &tally{pods: map[types.UID]*fate{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	for _, informer := range []cache.SharedIndexInformer{factory.Core().V1().Pods().Informer(), factory.Core().V1().Events().Informer()} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    y.see,
			UpdateFunc: func(_, o any) { y.see(o) },
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	factory.Start(ctx.Done())
	for what, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			t.Fatalf("%s of the namespace cannot be watched", what)
		}
	}
	return y
}

// see takes in a pod or an event as it is now.
func (y *tally) see(o any) {
	y.mu.Lock()
	defer y.mu.Unlock()
	switch o := o.(type) {
	case *corev1.Pod:
		y.of(o.UID, o.Name).take(o)
	case *corev1.Event:
		if isRefusal(o.Reason) && o.InvolvedObject.Kind == "Pod" {
			y.of(o.InvolvedObject.UID, o.InvolvedObject.Name).refused = o.Reason + ": " + cause(o.Message)
		}
	}
}

// of is a pod's entry. The caller holds the lock.
func (y *tally) of(uid types.UID, name string) *fate {
	if y.pods[uid] == nil {
		y.pods[uid] = &fate{name: name, owner: "none"}
	}
	return y.pods[uid]
}

func (f *fate) take(p *corev1.Pod) {
	for _, r := range p.OwnerReferences {
		if r.Controller != nil && *r.Controller && r.Kind != "PodGroup" {
			f.owner = r.Kind
		}
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		f.ran = f.ran || s.State.Running != nil
		if e := s.State.Terminated; e != nil && e.ExitCode != 0 {
			f.broke = fmt.Sprintf("%s ended with %d: %s %s", s.Name, e.ExitCode, e.Reason, e.Message)
			f.cut = e.Reason == "StartError" && strings.Contains(e.Message, "context canceled")
		}
	}
	if p.Labels[plainPod] != "" {
		f.owner = plainPod
	}
	f.phase = p.Status.Phase
	if isRefusal(p.Status.Reason) {
		f.refused = p.Status.Reason + ": " + cause(p.Status.Message)
	}
}

// giveUp notes that a pod neither ended nor ran in time.
func (y *tally) giveUp(p *corev1.Pod) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.of(p.UID, p.Name).stuck = true
}

// isRefusal reports whether a reason is one with which the kubelet turns a pod away for good.
func isRefusal(reason string) bool {
	return strings.HasSuffix(reason, "AdmissionError") || strings.HasSuffix(reason, "AffinityError") || strings.HasPrefix(reason, "OutOf")
}

// cause is the part of the kubelet's message that is the same for every pod.
func cause(message string) string {
	for _, known := range []string{
		"no healthy devices present", "previously allocated devices are no longer healthy", "has been stopped",
		"requested number of devices unavailable", "cannot allocate unregistered device", "unknown Device Plugin", "rpc error",
	} {
		if strings.Contains(message, known) {
			return known
		}
	}
	return message
}

// fates are those that a condition holds for.
func (y *tally) fates(of func(*fate) bool) []fate {
	y.mu.Lock()
	defer y.mu.Unlock()
	var all []fate
	for _, f := range y.pods {
		if of(f) {
			all = append(all, *f)
		}
	}
	return all
}

// summary is one line for each kind of owner.
func (y *tally) summary() string {
	type counts struct{ pods, refused, failed int }
	of := map[string]counts{}
	for _, f := range y.fates(func(*fate) bool { return true }) {
		c := of[f.owner]
		c.pods++
		if f.refused != "" {
			c.refused++
		}
		if f.failed() {
			c.failed++
		}
		of[f.owner] = c
	}
	var out strings.Builder
	for _, owner := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(&out, "  owner %-10s %6d pods, %5d refused, %5d failed\n", owner, of[owner].pods, of[owner].refused, of[owner].failed)
	}
	return out.String()
}

// table is the summary with the reasons.
func (y *tally) table() string {
	type row struct{ owner, why string }
	counts := map[row]int{}
	for _, f := range y.fates(func(f *fate) bool { return f.failed() || f.refused != "" }) {
		counts[row{f.owner, f.why()}]++
	}
	rows := slices.SortedFunc(maps.Keys(counts), func(a, b row) int {
		return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(a.why, b.why))
	})
	var out strings.Builder
	out.WriteString(y.summary())
	for _, r := range rows {
		fmt.Fprintf(&out, "  %6d of owner %-10s %s\n", counts[r], r.owner, r.why)
	}
	return out.String()
}
