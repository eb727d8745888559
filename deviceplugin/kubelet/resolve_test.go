// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"deviceshare/sharing"
)

const count = "volcano.sh/vgpu-number"

// world is what the sources say in one case.
type world struct {
	kubelet    string // text of the checkpoint; "" cannot be read
	live       map[sharing.Owner]types.NamespacedName
	get        map[types.NamespacedName]PodSlots
	getErr     error
	list       []PodSlots
	remembered map[string]string
	listed     int
}

func (w *world) Await(_ context.Context, o sharing.Owner) (types.NamespacedName, bool) {
	n, ok := w.live[o]
	return n, ok
}
func (w *world) Live() map[sharing.Owner]types.NamespacedName { return w.live }
func (w *world) Get(_ context.Context, pod types.NamespacedName) (PodSlots, error) {
	return w.get[pod], w.getErr
}
func (w *world) List(context.Context) ([]PodSlots, error) { w.listed++; return w.list, nil }

func (w *world) ReadCheckpoint() (Record, error) {
	if w.kubelet == "" {
		return Record{}, errors.New("no such file")
	}
	return DecodeCheckpoint([]byte(w.kubelet))
}

func (w *world) resolver() *Resolver {
	return &Resolver{
		Checkpoint: w, Resources: w, Pods: w, Resource: w, Memory: w, Patience: time.Millisecond,
	}
}

func (w *world) ResourceName() string { return count }

func (w *world) Remembered(_ sharing.Owner, _ string, slots []string) (string, bool) {
	id, ok := w.remembered[strings.Join(slots, ",")]
	return id, ok
}

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

func usage(pod, container string, slots ...string) PodSlots {
	return PodSlots{Pod: named(pod), Slots: map[string][]string{container: slots}}
}

func held(uid, container, id string, slots ...string) string {
	quoted := make([]string, 0, len(slots))
	for _, s := range slots {
		quoted = append(quoted, fmt.Sprintf("%q", s))
	}
	names := []string{}
	if id != "" {
		names = append(names, "volcano.sh/vgpu="+id)
	}
	return entryText(uid, container, count, "-1", strings.Join(quoted, ","), response(names...))
}

// resolution is one case: what the sources say, and the answer or the error.
type resolution struct {
	world world
	slots []string
	want  Identity
	err   string
}

// certain are the cases with an answer.
func certain() map[string]resolution {
	one := map[sharing.Owner]types.NamespacedName{"u1": named("p1")}
	both := map[sharing.Owner]types.NamespacedName{"u1": named("p1"), "u2": named("p2")}
	other := entryText("u2", "main", "example.com/other", "0", `"s1"`, response("volcano.sh/vgpu=x"))
	return map[string]resolution{
		"the checkpoint names pod and container": {
			world: world{kubelet: fileText(held("u1", "main", "id1", "s2", "s1")), live: one, get: map[types.NamespacedName]PodSlots{named("p1"): usage("p1", "main", "s1", "s2")}},
			slots: []string{"s1", "s2"},
			want:  Identity{Owner: "u1", Pod: named("p1"), Containers: []Container{{"main", "id1"}}},
		},
		"the order of slots does not matter": {
			world: world{kubelet: fileText(held("u1", "main", "id1", "s1", "s2")), live: one}, slots: []string{"s2", "s1"},
			want: Identity{Owner: "u1", Pod: named("p1"), Containers: []Container{{"main", "id1"}}},
		},
		"an init container and the app container that took its slots are both meant": {
			world: world{kubelet: fileText(held("u1", "init", "id1", "s1"), held("u1", "main", "id2", "s1")), live: one, get: map[types.NamespacedName]PodSlots{named("p1"): usage("p1", "main", "s1")}},
			slots: []string{"s1"},
			want:  Identity{Owner: "u1", Pod: named("p1"), Containers: []Container{{"init", "id1"}, {"main", "id2"}}},
		},
		"an init container with more slots than the app container is told apart": {
			world: world{kubelet: fileText(held("u1", "init", "id1", "s1", "s2"), held("u1", "main", "id2", "s1")), live: one}, slots: []string{"s1", "s2"},
			want: Identity{Owner: "u1", Pod: named("p1"), Containers: []Container{{"init", "id1"}}},
		},
		"equal slots of another resource are somebody else's": {
			world: world{kubelet: fileText(held("u1", "main", "id1", "s1"), other), live: both}, slots: []string{"s1"},
			want: Identity{Owner: "u1", Pod: named("p1"), Containers: []Container{{"main", "id1"}}},
		},
		"a pod that is gone does not count as an owner": {
			world: world{kubelet: fileText(held("u1", "main", "id1", "s1"), held("u2", "main", "id2", "s1")), live: map[sharing.Owner]types.NamespacedName{"u2": named("p2")}}, slots: []string{"s1"},
			want: Identity{Owner: "u2", Pod: named("p2"), Containers: []Container{{"main", "id2"}}},
		},
		"an allocation of another device plugin has no id": {
			world: world{kubelet: fileText(entryText("u1", "main", count, "-1", `"s1"`, foreign())), live: one}, slots: []string{"s1"},
			want: Identity{Owner: "u1", Pod: named("p1"), Containers: []Container{{"main", ""}}},
		},
		"a kubelet without Get is believed by its checkpoint": {
			world: world{kubelet: fileText(held("u1", "main", "id1", "s1")), live: one, getErr: fmt.Errorf("get: %w", ErrNoPodResources)}, slots: []string{"s1"},
			want: Identity{Owner: "u1", Pod: named("p1"), Containers: []Container{{"main", "id1"}}},
		},
		"a pod the watch does not know yet is named by the kubelet": {
			world: world{kubelet: fileText(held("u1", "main", "id1", "s1")), list: []PodSlots{usage("p1", "main", "s1")}}, slots: []string{"s1"},
			want: Identity{Owner: "u1", Pod: named("p1"), Containers: []Container{{"main", "id1"}}},
		},
		"without a checkpoint podresources and memory serve": {
			world: world{live: one, list: []PodSlots{usage("p0", "x", "s0"), usage("p1", "main", "s1")}, remembered: map[string]string{"s1": "id9"}}, slots: []string{"s1"},
			want: Identity{Owner: "u1", Pod: named("p1"), Containers: []Container{{"main", "id9"}}},
		},
	}
}

// doubtful are the cases that must be refused.
func doubtful() map[string]resolution {
	one := map[sharing.Owner]types.NamespacedName{"u1": named("p1")}
	both := map[sharing.Owner]types.NamespacedName{"u1": named("p1"), "u2": named("p2")}
	return map[string]resolution{
		"two live owners are refused": {
			world: world{kubelet: fileText(held("u1", "main", "id1", "s1", "s2"), held("u2", "main", "id2", "s2")), live: both}, slots: []string{"s2"},
			err: "belong to ns/p1 and ns/p2",
		},
		"two owners in podresources are refused": {
			world: world{live: both, list: []PodSlots{usage("p1", "a", "s1"), usage("p2", "b", "s1")}}, slots: []string{"s1"}, err: "two pods",
		},
		"slots of nobody": {world: world{kubelet: fileText(), live: one}, slots: []string{"s1"}, err: "no owner of slots s1"},
		"no slots":        {world: world{kubelet: fileText(), live: one}, err: "no slots"},
		"a part of a set": {world: world{kubelet: fileText(held("u1", "main", "id1", "s1", "s2")), live: one}, slots: []string{"s1"}, err: "only together with others"},
		"sources that differ": {
			world: world{kubelet: fileText(held("u1", "main", "id1", "s1")), live: one, get: map[types.NamespacedName]PodSlots{named("p1"): usage("p1", "second", "s1")}}, slots: []string{"s1"}, err: "container second",
		},
		"a kubelet that fails": {
			world: world{kubelet: fileText(held("u1", "main", "id1", "s1")), live: one, getErr: errors.New("pod p1 not found")}, slots: []string{"s1"}, err: "not found",
		},
		"an empty answer":    {world: world{kubelet: fileText(held("u1", "main", "", "s1")), live: one}, slots: []string{"s1"}, err: "delete the pod"},
		"neither source":     {world: world{live: one}, slots: []string{"s1"}, err: "init containers are not listed"},
		"nothing remembered": {world: world{live: one, list: []PodSlots{usage("p1", "main", "s1")}}, slots: []string{"s1"}, err: "nothing is remembered"},
	}
}

func TestResolve(t *testing.T) {
	cases := certain()
	maps.Copy(cases, doubtful())
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := tc.world.resolver().Resolve(context.Background(), tc.slots)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %+v, %v; want an error with %q", got, err, tc.err)
				}
				return
			}
			slices.SortFunc(got.Containers, func(a, b Container) int { return strings.Compare(a.Name, b.Name) })
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, tc.want)
			}
		})
	}
}

func TestListingIsAvoidedWhileTheCheckpointServes(t *testing.T) {
	w := world{kubelet: fileText(held("u1", "main", "id1", "s1")), live: map[sharing.Owner]types.NamespacedName{"u1": named("p1")}}
	if _, err := w.resolver().Resolve(context.Background(), []string{"s1"}); err != nil || w.listed != 0 {
		t.Errorf("%v, listed %d times: a listing can make the kubelet give a slot twice", err, w.listed)
	}
}

func TestEachStartSaysWhichSourcesServe(t *testing.T) {
	live := map[sharing.Owner]types.NamespacedName{"u1": named("p1")}
	checkpoint := fileText(held("u1", "main", "id1", "s1"))
	for name, tc := range map[string]struct {
		world world
		want  map[Source]bool
	}{
		"both":              {world{kubelet: checkpoint, live: live}, map[Source]bool{SourceCheckpoint: true, SourcePodResources: true}},
		"the checkpoint":    {world{kubelet: checkpoint, live: live, getErr: fmt.Errorf("get: %w", ErrNoPodResources)}, map[Source]bool{SourceCheckpoint: true, SourcePodResources: false}},
		"podresources only": {world{live: live, list: []PodSlots{usage("p1", "main", "s1")}, remembered: map[string]string{"s1": "id1"}}, map[Source]bool{SourceCheckpoint: false}},
	} {
		told := map[Source]bool{}
		r := tc.world.resolver()
		r.Source = func(s Source, err error) { told[s] = err == nil }
		if _, err := r.Resolve(context.Background(), []string{"s1"}); err != nil || !maps.Equal(told, tc.want) {
			t.Errorf("%s: %v, told %v, want %v", name, err, told, tc.want)
		}
	}
}

func TestTwoOwnersIsAnErrorOfItsOwn(t *testing.T) {
	w := world{
		kubelet: fileText(held("u1", "a", "id1", "s1"), held("u2", "b", "id2", "s1")),
		live:    map[sharing.Owner]types.NamespacedName{"u1": named("p1"), "u2": named("p2")},
	}
	if _, err := w.resolver().Resolve(context.Background(), []string{"s1"}); !errors.Is(err, ErrTwoOwners) {
		t.Errorf("got %v", err)
	}
}

// patient is a world whose pods are waited for.
type patient struct {
	*world
	waits int
}

func (p *patient) Await(ctx context.Context, o sharing.Owner) (types.NamespacedName, bool) {
	if n, ok := p.live[o]; ok || ctx.Err() != nil {
		return n, ok
	}
	p.waits++
	<-ctx.Done()
	n, ok := p.live[o]
	return n, ok
}

// A pod that has ended stays in the kubelet's record until the next allocation. It does not hold up
// each start of the pod that has its slots now, and is seen all the same should it appear.
func TestAnOwnerThatHasEndedIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &patient{world: &world{
			kubelet: fileText(held("u1", "main", "id1", "s1"), held("ended", "main", "id0", "s1")),
			live:    map[sharing.Owner]types.NamespacedName{"u1": named("p1")},
		}}
		r := w.resolver()
		r.Pods, r.Patience = w, 2*time.Second
		began := time.Now()
		for n := range 5 {
			if id, err := r.Resolve(t.Context(), []string{"s1"}); err != nil || id.Owner != "u1" {
				t.Fatalf("start %d: %v, %v", n, id, err)
			}
		}
		if took := time.Since(began); w.waits != 1 || took != r.Patience {
			t.Errorf("the pod that has ended was waited for %d times in 5 starts, %v in all, want once for %v", w.waits, took, r.Patience)
		}
		w.live["ended"] = named("p0")
		if _, err := r.Resolve(t.Context(), []string{"s1"}); !errors.Is(err, ErrTwoOwners) {
			t.Errorf("when it is there after all: %v", err)
		}
	})
}

// Of several owners that have ended, the first uses the time up. The others are not taken for
// absent before somebody has waited for them.
func TestAnOwnerForWhomThereWasNoTimeIsWaitedForLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &patient{world: &world{
			kubelet: fileText(held("u1", "main", "id1", "s1"), held("ended", "main", "id0", "s1"), held("new", "main", "id2", "s1")),
			live:    map[sharing.Owner]types.NamespacedName{"u1": named("p1")},
		}}
		r := w.resolver()
		r.Pods, r.Patience = w, 2*time.Second
		for range 5 {
			if id, err := r.Resolve(t.Context(), []string{"s1"}); err != nil || id.Owner != "u1" {
				t.Fatalf("%v, %v", id, err)
			}
		}
		if w.waits != 2 {
			t.Errorf("two pods were waited for %d times in 5 starts, want each once", w.waits)
		}
	})
}
