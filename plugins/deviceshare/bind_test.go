// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/metrics"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/podstate"
	"deviceshare/plugins/deviceshare/snapshot"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
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

func TestTheBinderSendsWhatWasAssumedForThatNodeOnly(t *testing.T) {
	states := nodes.NewCluster(nil, nil).Pods()
	here, elsewhere, stopped, plain := podOf("here", "g"), podOf("elsewhere", "g"), podOf("stopped", "g"), podOf("plain", "g")
	states.Decide(nodes.Handover{Pod: here}, podstate.Decision{Node: "n1", Annotations: map[string]string{wire.PodPlacement: "planned"}})
	states.Decide(nodes.Handover{Pod: elsewhere}, podstate.Decision{Node: "n2", Annotations: map[string]string{wire.PodPlacement: "planned"}})
	states.Decide(nodes.Handover{Pod: stopped}, podstate.Decision{Node: "n1", Refusal: errNoPlacement})
	here.Annotations[wire.PodPlacement] = "stale"
	plain.Annotations[numaDecision] = "{}"

	client := fake.NewClientset()
	var tasks []*api.TaskInfo
	for _, p := range []*corev1.Pod{here, elsewhere, stopped, plain} {
		if _, err := client.CoreV1().Pods(p.Namespace).Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		task := api.NewTaskInfo(p)
		task.NodeName = "n1"
		tasks = append(tasks, task)
	}
	client.ClearActions()
	b := newBinder(states, nil, nobodyMustHaveDevices{}, soleLeader{}, metrics.New())
	if failed := b.Bind(client, nil); len(failed) != 0 || len(client.Actions()) != 0 {
		t.Errorf("binding nothing failed with %v after %d calls", failed, len(client.Actions()))
	}
	failed := b.Bind(client, tasks)
	if len(failed) != 2 || failed["uid-elsewhere"] == "" || failed["uid-stopped"] == "" {
		t.Errorf("failed: %v", failed)
	}
	sent := map[string]map[string]string{}
	for _, a := range bindingsOf(client) {
		sent[a.Name] = a.Annotations
	}
	want := map[string]map[string]string{
		"here": {wire.PodPlacement: "planned"}, "plain": {numaDecision: "{}"},
	}
	if d := cmp.Diff(want, sent); d != "" {
		t.Errorf("sent:\n%s", d)
	}
	if got := states.State("uid-here").Phase(); got != podstate.Accepted {
		t.Errorf("the bind that was accepted counts as %v", got)
	}
}

// nobodyMustHaveDevices lets pods be bound without a placement.
type nobodyMustHaveDevices struct{}

func (nobodyMustHaveDevices) mustHaveDevices(*corev1.Pod) bool { return false }

// reign is a leadership that lasts for some binds.
type reign struct{ binds, ended int }

func (r *reign) Begin() (until time.Time, done func(), err error) {
	if r.binds--; r.binds < 0 {
		return time.Time{}, nil, errors.New("another one leads")
	}
	return time.Now().Add(time.Hour), func() { r.ended++ }, nil
}

func TestPodsAreBoundByTheLeaderOnly(t *testing.T) {
	states := nodes.NewCluster(nil, nil).Pods()
	first, second := podOf("first", "g"), podOf("second", "g")
	client := fake.NewClientset(first, second)
	var tasks []*api.TaskInfo
	for _, p := range []*corev1.Pod{first, second} {
		states.Decide(nodes.Handover{Pod: p}, podstate.Decision{Node: "n1", Annotations: map[string]string{wire.PodPlacement: "planned"}})
		task := api.NewTaskInfo(p)
		task.NodeName = "n1"
		tasks = append(tasks, task)
	}
	lead := &reign{binds: 1}
	b := newBinder(states, nil, nobodyMustHaveDevices{}, lead, metrics.New())
	if failed := b.Bind(client, tasks); len(failed) != 1 || !strings.Contains(failed["uid-second"], "another one leads") {
		t.Errorf("failed: %v", failed)
	}
	if sent := bindingsOf(client); len(sent) != 1 || sent[0].Name != "first" || lead.ended != 1 {
		t.Errorf("sent %v, %d binds ended", sent, lead.ended)
	}
	if got := states.State("uid-second").Phase(); got != podstate.Decided {
		t.Errorf("what was not sent is %v", got)
	}
}

// Volcano binds all pods of a gang at the same time. An API server that is asked for too much at
// once answers 429, and whoever gets that waits.
func TestAGangIsBoundAFewPodsAtATime(t *testing.T) {
	const pods = 5 * bindsAtOnce
	var underWay, most, bound atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := underWay.Add(1)
		defer underWay.Add(-1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
		}
		time.Sleep(5 * time.Millisecond)
		bound.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	b := newBinder(nodes.NewCluster(nil, nil).Pods(), nil, nobodyMustHaveDevices{}, soleLeader{}, metrics.New())
	var calls sync.WaitGroup
	for i := range pods {
		task := api.NewTaskInfo(podOf(fmt.Sprint("p", i), "g"))
		task.NodeName = "n1"
		calls.Go(func() {
			if failed := b.Bind(client, []*api.TaskInfo{task}); len(failed) > 0 {
				t.Errorf("failed: %v", failed)
			}
		})
	}
	calls.Wait()
	if bound.Load() != pods || most.Load() > bindsAtOnce || most.Load() < 2 {
		t.Errorf("%d of %d pods were bound, %d at a time, want at most %d", bound.Load(), pods, most.Load(), bindsAtOnce)
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
