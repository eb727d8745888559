// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/snapshot"
	"deviceshare/sharing"
)

func TestWhatBecomesOfABindIsTakenFromTheNextSnapshots(t *testing.T) {
	lost := errors.New("the connection was lost")
	for name, c := range map[string]struct {
		apply bool
		err   error
		holds bool
	}{
		"accepted":                            {apply: true, holds: true},
		"refused":                             {err: errors.New("no such node")},
		"accepted and the answer was lost":    {apply: true, err: lost, holds: true},
		"never arrived, and no answer either": {err: lost},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 7000}))
			w.answerWith(func(string) (bool, error) { return c.apply, c.err })
			w.schedule()
			w.bound("p")
			w.answerWith(func(string) (bool, error) { return false, errors.New("not again") })
			w.tierOff()
			w.settled()
			want := []sharing.Owner{}
			if c.holds {
				want = append(want, "uid-p")
			}
			if got := w.owners("n1"); !cmp.Equal(got, want) {
				t.Errorf("holding devices: %v, want %v", got, want)
			}
		})
	}
}

func TestAPodDeletedWhileItIsBoundGivesItsDevicesBack(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), podOf("p", "g", asks{number: 1}))
	w.answerWith(func(name string) (bool, error) {
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		return false, errors.Join(errors.New("gone"), w.client.Tracker().Delete(pods, "ns", name))
	})
	w.schedule()
	w.bound("p")
	w.settled()
	if got := w.owners("n1"); len(got) != 0 {
		t.Errorf("holding devices: %v", got)
	}
}

func TestAProcessWithoutAPastReadsTheSameLedger(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 2, 10000)), groupOf("g", 3),
		podOf("a", "g", asks{number: 1, memory: 3000}), podOf("b", "g", asks{number: 2, cores: 10, memory: 100}), podOf("c", "g", asks{number: 1}))
	w.schedule()
	for _, name := range []string{"a", "b", "c"} {
		w.bound(name)
	}
	w.settled()
	before := w.ledgers()
	w.restart()
	w.schedule()
	if d := cmp.Diff(before, w.ledgers()); d != "" {
		t.Errorf("ledgers before and after the restart differ:\n%s", d)
	}
	if len(before["n1"])+len(before["n2"]) != 3 {
		t.Errorf("ledgers %v", before)
	}
}

func TestAPodThatAsksIsNotBoundWhenItsDecisionIsForgotten(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), podOf("p", "g", asks{number: 1}), podOf("plain", "g", asks{}))
	w.tierOff()
	w.schedule()
	for name, want := range map[string]int{"p": 1, "plain": 0} {
		ssn := w.open()
		task := w.task(ssn, name).Clone()
		framework.CloseSession(ssn)
		task.NodeName = "n1"
		if failed := w.store.Binder().Bind(w.client, []*api.TaskInfo{task}); len(failed) != want {
			t.Errorf("%s: %v", name, failed)
		}
	}
}

// failingPreBinder stands for the binding of volumes, which Volcano does before it
// calls the binder.
type failingPreBinder struct {
	mu    sync.Mutex
	calls int
	fails bool
}

func (f *failingPreBinder) PreBind(context.Context, *cache.BindContext) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.fails {
		return errors.New("no such volume")
	}
	return nil
}

func (f *failingPreBinder) PreBindRollBack(context.Context, *cache.BindContext) {}

func (f *failingPreBinder) set(fails bool) { f.mu.Lock(); f.fails = fails; f.mu.Unlock() }

func (f *failingPreBinder) tried() int { f.mu.Lock(); defer f.mu.Unlock(); return f.calls }

func TestAPodWhoseVolumesCouldNotBeBoundIsNotRefusedByItsOwnReservation(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 7000}))
	volumes := &failingPreBinder{fails: true}
	w.cache.RegisterBinder("volumes", volumes)
	w.schedule()
	w.eventually("the volumes are tried", func() bool { return volumes.tried() > 0 })
	volumes.set(false)
	w.eventually("the pod is bound", func() bool {
		w.schedule()
		_, ok := w.binding("p")
		return ok
	})
}

func TestAPodThatIsDeletedAfterItsVolumesFailedLeavesNothing(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 7000}))
	volumes := &failingPreBinder{fails: true}
	w.cache.RegisterBinder("volumes", volumes)
	w.schedule()
	w.eventually("the volumes are tried", func() bool { return volumes.tried() > 0 })
	w.tierOff()
	if err := w.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ns", "p"); err != nil {
		t.Fatal(err)
	}
	w.settled()
	w.schedule()
	if got := w.owners("n1"); len(got) != 0 {
		t.Errorf("holding devices: %v", got)
	}
}

func TestTheSnapshotOfASessionFindsPodsByTheirNameAndByTheirJob(t *testing.T) {
	task := api.NewTaskInfo(podOf("p", "g", asks{number: 1}))
	task.NodeName = "n1"
	job := api.NewJobInfo(task.Job, task)
	node := nodeOf(t, devices("n1", 1, 10000))
	s := snapshot.Of(&framework.Session{Nodes: map[string]*api.NodeInfo{"n1": infoOf(node, []*corev1.Pod{task.Pod})}, Jobs: map[api.JobID]*api.JobInfo{task.Job: job}}, nil)
	for want, got := range map[string]*corev1.Pod{
		"by its name":          s.Host("n1").Pod(types.NamespacedName{Namespace: "ns", Name: "p"}),
		"by its job":           s.Assigned(string(task.Job), "uid-p", "n1"),
		"not on another node":  s.Assigned(string(task.Job), "uid-p", "n2"),
		"not another pod":      s.Assigned(string(task.Job), "uid-x", "n1"),
		"not of another job":   s.Assigned("ns/x", "uid-p", "n1"),
		"not by another name":  s.Host("n1").Pod(types.NamespacedName{Namespace: "ns", Name: "x"}),
		"not in another space": s.Host("n1").Pod(types.NamespacedName{Namespace: "x", Name: "p"}),
	} {
		if found := got == task.Pod; found == strings.HasPrefix(want, "not") {
			t.Errorf("found %s: %t", want, found)
		}
	}
	if s.Host("n2") != nil {
		t.Error("a node that is not there was found")
	}
}
