// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// desk is an evictor at an API server that evicts as the real one does: only the
// version that is meant.
type desk struct {
	t       *testing.T
	api     *fake.Clientset
	evictor *Evictor

	mu     sync.Mutex
	calls  int
	answer func(call int) error
	state  node.State // what was told is remembered there, as the agent does
	said   []string
}

func newDesk(t *testing.T, pods ...*corev1.Pod) *desk {
	d := &desk{t: t, api: fake.NewClientset()}
	for _, p := range pods {
		if _, err := d.api.CoreV1().Pods(p.Namespace).Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d.api.PrependReactor("delete", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, d.evict(a.(k8stesting.DeleteActionImpl))
	})
	d.evictor = NewEvictor(EvictorConfig{
		Client: d.api, Delay: time.Millisecond, Placements: d,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = d.evictor.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return d
}

func (d *desk) Started(p *corev1.Pod) bool        { return p.Status.Phase == corev1.PodRunning }
func (d *desk) Evicted(p *corev1.Pod, why string) { d.misplaced(p, node.Evicted, why) }
func (d *desk) Kept(p *corev1.Pod, why string)    { d.misplaced(p, node.Kept, why) }

func (d *desk) misplaced(p *corev1.Pod, fate node.Fate, why string) {
	d.take(node.Misplaced{Owner: sharing.Owner(p.UID), Pod: p.Name, Fate: fate, Why: why})
}

func (d *desk) take(e node.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.state
	d.state = node.Reduce(before, e)
	for _, n := range node.Diff(before, d.state) {
		d.said = append(d.said, n.Pod.Fate.String()+" "+n.Pod.Pod+": "+n.Detail)
	}
}

func (d *desk) all() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.said, "\n")
}

func (d *desk) evict(e k8stesting.DeleteActionImpl) error {
	d.mu.Lock()
	d.calls++
	call, answer := d.calls, d.answer
	d.mu.Unlock()
	if answer != nil {
		if err := answer(call); err != nil {
			return err
		}
	}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	o, err := d.api.Tracker().Get(pods, e.Namespace, e.Name)
	if err != nil {
		return err
	}
	p, pre := o.(*corev1.Pod), e.DeleteOptions.Preconditions
	if pre == nil || pre.UID == nil || pre.ResourceVersion == nil || *pre.UID != p.UID || *pre.ResourceVersion != p.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, e.Name, errors.New("another version"))
	}
	return d.api.Tracker().Delete(pods, e.Namespace, e.Name)
}

func (d *desk) exists(name string) bool {
	_, err := d.api.CoreV1().Pods("ns").Get(context.Background(), name, metav1.GetOptions{})
	return err == nil
}

func (d *desk) await(what string, done func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Fatalf("still waiting for %s; said:\n%s", what, d.all())
		}
	}
}

// of is a pod of a controller of this kind; of none if it is empty.
func of(name, kind string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-1", ResourceVersion: "7"},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	if kind != "" {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "c", Controller: &yes}}
	}
	return p
}

func TestAPodThatIsMadeAgainIsEvictedOnceWithTheReason(t *testing.T) {
	p := of("p", "ReplicaSet")
	d := newDesk(t, p)
	for range 5 {
		d.evictor.Replace(p, "device GPU-0 is in mode mps now")
	}
	d.await("the eviction", func() bool { return !d.exists("p") })
	if got := d.all(); got != "evicted p: device GPU-0 is in mode mps now" {
		t.Errorf("said:\n%s", got)
	}
}

func TestPodsThatAreKeptAreToldOnceWhatToDo(t *testing.T) {
	running, leaving := of("p", "ReplicaSet"), of("p", "ReplicaSet")
	running.Status.Phase = corev1.PodRunning
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string // "" if nothing needs to be told
	}{
		"nobody would make it again": {of("p", ""), "why: no controller would make it again, so it is kept; to have it placed anew, delete it and create it again: kubectl delete pod -n ns p"},
		"it has run":                 {running, "has run already"},
		"it is going":                {leaving, ""},
		"it belongs to the node":     {of("p", "Node"), "belongs to the node"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			for range 3 {
				d.evictor.Replace(c.pod, "why")
			}
			told := min(len(c.want), 1)
			if got := d.all(); strings.Count(got, "kept p: ") != told || !strings.Contains(got, c.want) {
				t.Errorf("said:\n%s", got)
			}
			if d.evictor.queue.Len() != 0 {
				t.Error("it is going to be evicted")
			}
			d.take(node.OwnerGone{Owner: "uid-1"})
			d.evictor.Replace(c.pod, "why")
			if strings.Count(d.all(), "kept p: ") != 2*told {
				t.Error("a pod that is gone was not forgotten")
			}
		})
	}
}

func TestAPodThatBeganMeanwhileIsLeftAlone(t *testing.T) {
	p := of("p", "ReplicaSet")
	began := p.DeepCopy()
	began.Status.Phase, began.ResourceVersion = corev1.PodRunning, "8"
	d := newDesk(t, p)
	d.answer = func(call int) error {
		if call == 1 {
			// Between the look and the eviction.
			if err := d.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), began, "ns"); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	d.evictor.Replace(p, "why")
	d.await("the second look", func() bool {
		d.evictor.mu.Lock()
		defer d.evictor.mu.Unlock()
		return len(d.evictor.why) == 0
	})
	if !d.exists("p") || d.calls != 1 {
		t.Errorf("evicted after %d calls", d.calls)
	}
}

func TestAnotherPodOfTheSameNameIsLeftAlone(t *testing.T) {
	later := of("p", "ReplicaSet")
	later.UID = "uid-2"
	d := newDesk(t, later)
	d.evictor.Replace(of("p", "ReplicaSet"), "why")
	d.await("the look", func() bool {
		d.evictor.mu.Lock()
		defer d.evictor.mu.Unlock()
		return len(d.evictor.why) == 0
	})
	if !d.exists("p") || d.all() != "" {
		t.Errorf("said:\n%s", d.all())
	}
}

func TestAnEvictionThatFailsIsTriedAgain(t *testing.T) {
	p := of("p", "Job")
	d := newDesk(t, p)
	d.answer = func(call int) error {
		if call == 1 {
			return apierrors.NewTooManyRequests("a budget", 1)
		}
		return nil
	}
	d.evictor.Replace(p, "why")
	d.await("the eviction", func() bool { return !d.exists("p") })
	if strings.Count(d.all(), "evicted p") != 1 {
		t.Errorf("said:\n%s", d.all())
	}
}
