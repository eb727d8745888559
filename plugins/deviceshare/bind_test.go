// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"volcano.sh/volcano/pkg/scheduler/api"

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
	assumed := newAssumptions()
	here, elsewhere, stopped, plain := podOf("here", "g"), podOf("elsewhere", "g"), podOf("stopped", "g"), podOf("plain", "g")
	assumed.assume("uid-here", assumption{pod: here, node: "n1", annotations: map[string]string{wire.PodPlacement: "planned"}})
	assumed.assume("uid-elsewhere", assumption{pod: elsewhere, node: "n2", annotations: map[string]string{wire.PodPlacement: "planned"}})
	assumed.assume("uid-stopped", assumption{pod: stopped, node: "n1", err: errNoPlacement})
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
	b := &Binder{assumed: assumed}
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
	if as, _ := assumed.get("uid-here"); as.underway {
		t.Error("the bind that returned still counts as under way")
	}
}

func TestAnAssumptionUnderWayOutlivesASnapshotWithoutThePod(t *testing.T) {
	assumed := newAssumptions()
	pod := podOf("p", "g", asks{number: 1})
	assumed.assume("uid-p", assumption{pod: pod, node: "n1", placement: sharing.Placement{Node: "n1"}})
	info := infoOf(nodeOf(t, devices("n1", 1, 10000)), nil)
	nodes := map[string]*api.NodeInfo{"n1": info}
	assumed.settle(nodes, nil)
	if len(assumed.underwayTo("n1")) != 1 {
		t.Error("dropped although nobody knows what became of it")
	}
	assumed.returned("uid-p", "n2")
	assumed.settle(nodes, nil)
	if assumed.len() != 1 {
		t.Error("dropped by the answer of another node")
	}
	assumed.returned("uid-p", "n1")
	assumed.settle(nodes, nil)
	if assumed.len() != 0 {
		t.Error("kept although the pod is not on the node")
	}
}

func TestAnAssumptionOnANodeThatIsNotInTheSnapshotLivesAsLongAsTheJobSaysSo(t *testing.T) {
	pod := podOf("p", "g", asks{number: 1})
	task := api.NewTaskInfo(pod)
	task.NodeName = "n1"
	job := api.NewJobInfo(task.Job, task)
	assumed := newAssumptions()
	assumed.assume("uid-p", assumption{pod: pod, job: task.Job, node: "n1"})
	assumed.returned("uid-p", "n1")
	assumed.settle(nil, map[api.JobID]*api.JobInfo{task.Job: job})
	if assumed.len() != 1 {
		t.Error("dropped although the job has the pod on the node")
	}
	assumed.settle(nil, nil)
	if assumed.len() != 0 {
		t.Error("kept although nobody knows the pod")
	}
}

func TestAWithdrawnAssumptionStopsABindThatHasNotBegun(t *testing.T) {
	assumed := newAssumptions()
	assumed.assume("uid-p", assumption{pod: podOf("p", "g"), node: "n1"})
	assumed.withdraw("uid-p")
	if as, ok := assumed.get("uid-p"); !ok || as.err == nil || as.underway {
		t.Errorf("after the withdrawal: %+v", as)
	}
}
