// SPDX-License-Identifier: Apache-2.0

package oversight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// witnessed is a node with containers, as a Witness sees it.
type witnessed struct {
	processes
	Observer
	containerRuntime
	loop
	pods     map[sharing.Owner]*corev1.Pod
	mounts   map[string][][]string // of each process of a container, by its id; nil is unreadable
	why      string
	err      error
	ended    []string
	told     []string
	troubled string
	*witness
}

func newWitnessed(again time.Duration) *witnessed {
	w := &witnessed{pods: map[sharing.Owner]*corev1.Pod{}, mounts: map[string][][]string{}}
	w.witness = newWitness(&Config{Pods: w, processes: w, Runtime: w, Agent: w, Observer: w})
	w.again = again
	return w
}

func (w *witnessed) Unenforced(pod *corev1.Pod, container, _ string) {
	w.told = append(w.told, pod.Name+"/"+container)
}

func (w *witnessed) Pod(owner sharing.Owner) (*corev1.Pod, bool) {
	p, ok := w.pods[owner]
	return p, ok
}

func (w *witnessed) pidsOf(container string) ([]int, error) {
	if w.err != nil {
		return nil, w.err
	}
	var pids []int
	for i := range w.mounts[container] {
		pids = append(pids, len(container)<<16|int(container[len(container)-1])<<8|i)
	}
	return pids, nil
}

func (w *witnessed) mountPoints(pid int) ([]string, error) {
	for container, processes := range w.mounts {
		if len(container) == pid>>16 && int(container[len(container)-1]) == pid>>8&0xff {
			if points := processes[pid&0xff]; points != nil {
				return points, nil
			}
		}
	}
	return nil, errors.New("no such process")
}

func (w *witnessed) killAll(container string) error {
	w.ended = append(w.ended, container)
	delete(w.mounts, container)
	return nil
}

func (w *witnessed) Ignores(context.Context) (string, error) { return w.why, w.err }

func (w *witnessed) Send(e node.Event) {
	w.troubled = ""
	if t, is := e.(node.Troubled); is {
		w.troubled = t.Why
	}
}

// place makes a pod with a container that has a status.
func (w *witnessed) place(pod string, statuses ...corev1.ContainerStatus) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: pod, UID: types.UID(pod)}}
	p.Status.ContainerStatuses = statuses
	w.pods[sharing.Owner(pod)] = p
	return p
}

func runs(name, id string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + id, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func hasEnded(name, id string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + id, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
}

func (w *witnessed) prepare(pod, container, allocation string) {
	w.expectContainer(w.pods[sharing.Owner(pod)], &modes.Claim{Owner: sharing.Owner(pod), Container: container, ID: allocation})
}

var (
	sealedBy = func(allocation string) []string { return []string{"/", "/proc", "/run/volcano-vgpu/" + allocation} }
	unsealed = []string{"/", "/proc", "/etc/hosts"}
)

func TestAContainerIsEndedThatHasNothingOfWhatItWasGiven(t *testing.T) {
	tests := map[string]struct {
		before, status corev1.ContainerStatus
		processes      [][]string
		ended          bool
		waits          bool // it is looked at again
	}{
		"it runs with its allocation":                         {status: runs("a", "c1"), processes: [][]string{sealedBy("id")}},
		"it runs without":                                     {status: runs("a", "c1"), processes: [][]string{unsealed}, ended: true, waits: true},
		"it runs with another one's":                          {status: runs("a", "c1"), processes: [][]string{sealedBy("other")}, ended: true, waits: true},
		"one of its processes is just being brought into it":  {status: runs("a", "c1"), processes: [][]string{unsealed, sealedBy("id")}},
		"the container before it still shows":                 {before: runs("a", "c0"), status: runs("a", "c0"), processes: [][]string{unsealed}, waits: true},
		"it has started anew":                                 {before: hasEnded("a", "c0"), status: runs("a", "c1"), processes: [][]string{unsealed}, ended: true, waits: true},
		"it has not started":                                  {status: corev1.ContainerStatus{Name: "a"}, waits: true},
		"it has ended already":                                {status: hasEnded("a", "c1"), processes: [][]string{unsealed}},
		"another container of its pod runs":                   {status: runs("b", "c1"), processes: [][]string{unsealed}, waits: true},
		"its processes have ended, its status says otherwise": {status: runs("a", "c1"), waits: true},
		"its process cannot be looked at":                     {status: runs("a", "c1"), processes: [][]string{nil}, waits: true},
		"its process has no mounts any more":                  {status: runs("a", "c1"), processes: [][]string{{}}, waits: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWitnessed(time.Hour)
			w.place("p", tt.before)
			w.prepare("p", "a", "id")
			w.place("p", tt.status)
			w.mounts["c1"], w.mounts["c0"] = tt.processes, tt.processes
			for range minSightings {
				if len(w.ended) > 0 {
					t.Error("ended at first sight")
				}
				w.lookAll()
			}
			if got := len(w.ended) > 0; got != tt.ended || got != (w.troubled != "") || got != slices.Contains(w.told, "p/a") {
				t.Errorf("ended %q, told %q, troubled %q", w.ended, w.told, w.troubled)
			}
			if waits := len(w.expected) > 0; waits != tt.waits {
				t.Errorf("it is looked at again: %v", waits)
			}
		})
	}
}

func TestARuntimeThatVouchesForItselfIsNotBlamed(t *testing.T) {
	w := newWitnessed(time.Hour)
	w.askRuntime(context.Background())
	w.place("p")
	w.prepare("p", "a", "id")
	w.place("p", runs("a", "c1"))
	w.mounts["c1"] = [][]string{unsealed}
	for range minSightings {
		w.lookAll()
	}
	if len(w.ended) != 1 || len(w.told) != 1 || w.troubled != "" {
		t.Errorf("ended %q, told %q, troubled %q", w.ended, w.told, w.troubled)
	}
}

func TestAPodThatIsGoneIsLookedAtNoMore(t *testing.T) {
	w := newWitnessed(time.Hour)
	w.place("p")
	w.prepare("p", "a", "id")
	delete(w.pods, "p")
	w.lookAll()
	if len(w.expected) > 0 {
		t.Errorf("still expected: %v", w.expected)
	}
}

func TestProcessesThatCannotBeListedEndNothing(t *testing.T) {
	w := newWitnessed(time.Hour)
	w.place("p", runs("a", "c1"))
	w.pods["p"].Status.ContainerStatuses = nil
	w.prepare("p", "a", "id")
	w.place("p", runs("a", "c1"))
	w.mounts["c1"], w.err = [][]string{unsealed}, errors.New("too many open files")
	for range 3 {
		w.lookAll()
	}
	if len(w.ended)+len(w.told) > 0 {
		t.Errorf("ended %q, told %q", w.ended, w.told)
	}
}

func TestARuntimeIsTrustedAgain(t *testing.T) {
	ctx := context.Background()
	w := newWitnessed(time.Hour)
	ask := func(what, why string, err error, troubled bool) {
		t.Helper()
		w.why, w.err = why, err
		w.askRuntime(ctx)
		if got := w.troubled != ""; got != troubled {
			t.Errorf("%s: troubled %q", what, w.troubled)
		}
	}
	ask("it says that all is well", "", nil, false)
	ask("it says that CDI is off", "CDI is off", nil, true)
	ask("it does not answer", "", errors.New("starting"), true)
	ask("it was mended", "", nil, false)
	ask("it falls silent", "", cdi.ErrRuntimeSilent, false)
	w.place("p")
	w.prepare("p", "a", "id")
	w.place("p", runs("a", "c1"))
	w.mounts["c1"] = [][]string{unsealed}
	w.err = nil
	w.lookAll()
	w.lookAll()
	ask("it says that all is well, and a container was just ended", "", nil, true)
	ask("it says nothing, and a container was just ended", "", cdi.ErrRuntimeSilent, true)
	w.untilAgain = time.Now().Add(-time.Second)
	ask("after a while one is tried again, whatever it says", "", cdi.ErrRuntimeSilent, false)
}

// TestTheWitnessInRandomOrders starts, ends and looks at containers in random orders, of which some
// have what they were given. Those that have are never ended, however late their status arrives,
// and none that does not have it outlives two looks at a status that says it runs.
func TestTheWitnessInRandomOrders(t *testing.T) {
	for seed := range uint64(300) {
		w := newWitnessed(0)
		r := rand.New(rand.NewPCG(seed, 1))
		whole := map[string]bool{} // the containers by id
		seen := map[string]int{}   // looks since the status says that it runs
		current := map[string]string{}
		for n := range 60 {
			pod := fmt.Sprint("p", r.IntN(4))
			if w.pods[sharing.Owner(pod)] == nil {
				w.place(pod)
			}
			switch r.IntN(6) {
			case 0: // the container starts, anew if it has before
				delete(w.mounts, current[pod])
				id := fmt.Sprintf("%s-%s%c", pod, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"[:n], 'a'+r.IntN(26))
				w.prepare(pod, "a", "of-"+pod)
				current[pod], whole[id] = id, r.IntN(2) == 0
				w.mounts[id] = [][]string{unsealed}
				if whole[id] {
					w.mounts[id] = append(w.mounts[id], sealedBy("of-"+pod))
				}
			case 1, 2: // the status arrives
				if id := current[pod]; id != "" && w.mounts[id] != nil {
					w.place(pod, runs("a", id))
				} else if id != "" {
					w.place(pod, hasEnded("a", id))
				}
			default:
				w.lookAll()
				for p, id := range current {
					shown := w.pods[sharing.Owner(p)].Status.ContainerStatuses
					if w.mounts[id] == nil || len(shown) == 0 || shown[0].ContainerID != "containerd://"+id {
						continue
					}
					if seen[id]++; !whole[id] && seen[id] >= minSightings {
						t.Fatalf("seed %d: %s runs without what it was given", seed, id)
					}
				}
			}
			for _, id := range w.ended {
				if whole[id] {
					t.Fatalf("seed %d: %s was ended, and had what it was given", seed, id)
				}
			}
		}
	}
}
