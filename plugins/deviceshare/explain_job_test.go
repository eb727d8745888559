// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"volcano.sh/apis/pkg/apis/scheduling"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/sharing/wire"
)

// Volcano writes each text that differs into the status of its pod.
func TestOneDeviceThatComesAndGoesIsNotToldToEveryPodThatWaits(t *testing.T) {
	inv := devices("n1", 8, 10000)
	objects := []runtime.Object{nodeOf(t, inv), groupOf("g", 1)}
	for i := range 500 {
		objects = append(objects, podOf(fmt.Sprintf("p%03d", i), "g", asks{number: 8, memory: 9000 + int64(i%10)}))
	}
	for i := range 8 {
		objects = append(objects, runningOn(t, podOf(fmt.Sprintf("busy-%d", i), "other", asks{number: 1, memory: 5000}), "n1", share(inv.Devices[i].ID, 5000)))
	}
	w := newWorld(t, append(objects, groupOf("other", 1))...)
	now := int64(1700000000)
	w.store.now = func() time.Time { return time.Unix(now, 0) }
	w.explained()
	if told := w.status.changes(); told < 500 {
		t.Fatalf("%d of 500 pods were told why they wait: %s", told, w.status.message("p000"))
	}
	for session := range 5 {
		now++
		w.eventsOf() // there is room for so many
		inv.Devices[3].Healthy = session%2 == 1
		w.publish(nodeOf(t, inv))
		w.explained()
		if told := w.status.changes(); told > 0 {
			t.Errorf("session %d: %d of 500 pods were told something else: %s", session, told, w.status.message("p000"))
		}
	}
	for range 20 {
		now++
		w.eventsOf()
		w.explained()
	}
	if told := w.status.changes(); told != 500 {
		t.Errorf("a device that stays broken was told to %d of 500 pods", told)
	}
}

// publish replaces a node and waits until Volcano has it.
func (w *world) publish(node *corev1.Node) {
	w.t.Helper()
	if err := w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the node is published", func() bool {
		w.cache.Mutex.Lock()
		defer w.cache.Mutex.Unlock()
		return maps.Equal(w.cache.Nodes[node.Name].Node.Annotations, node.Annotations)
	})
}

func TestAmountsOfMemoryAreToldWithTheirUnit(t *testing.T) {
	g := heldGroup("g", 1, 1)
	(*g.Spec.MinResources)[wire.ResourceMemory] = resource.MustParse("30000")
	(*g.Spec.MinResources)[wire.ResourceCores] = resource.MustParse("500")
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10240)), g, podOf("p", "g", asks{number: 1, memory: 1000}))
	w.with("overcommit")
	w.explained()
	for _, want := range []string{"the job asks for 30000MiB of " + wire.ResourceMemory + ", 0 of 12GiB", "asks for 500 percent of " + wire.ResourceCores + ", 0 percent of 120 percent"} {
		if got := w.status.message("p"); !strings.Contains(got, want) {
			t.Errorf("told %q, want it to say %q", got, want)
		}
	}
}

// gangJob is a session with one job of n pods, one of which Volcano asked the nodes about.
func gangJob(t testing.TB, n int) (*Plugin, *framework.Session) {
	t.Helper()
	w := newWorld(t, small(t, "n1", 1))
	ssn := w.open()
	t.Cleanup(func() { framework.CloseSession(ssn) })
	tasks := make([]*api.TaskInfo, 0, n)
	for i := range n {
		tasks = append(tasks, api.NewTaskInfo(podOf(fmt.Sprintf("p%05d", i), "g", asks{number: 1, memory: 1000})))
	}
	job := api.NewJobInfo("ns/g", tasks...)
	job.Queue, job.MinAvailable = "default", int32(n)
	job.SetPodGroup(&api.PodGroup{PodGroup: scheduling.PodGroup{Spec: scheduling.PodGroupSpec{Queue: "default", MinMember: int32(n)},
		Status: scheduling.PodGroupStatus{Phase: scheduling.PodGroupInqueue}}})
	for i, task := range tasks {
		said := api.NewFitErrors()
		said.SetError(fmt.Sprintf("Task %s with role spec x has already predicated failed, skip", task.Name))
		if i == n/2 {
			said = api.NewFitErrors()
			said.SetNodeError("n1", refusalEverywhere(errNoPlacement))
		}
		job.NodesFitErrors[task.UID] = said
	}
	ssn.Jobs = map[api.JobID]*api.JobInfo{job.UID: job}
	w.plugin.jobs = ssn.Jobs
	return w.plugin, ssn
}

// A look at all pods of a job for each of its pods would be quadratic.
func TestAJobIsLookedAtOnceHoweverManyOfItsPodsWait(t *testing.T) {
	for _, pods := range []int{1, 50, 500} {
		p, ssn := gangJob(t, pods)
		looks := 0
		ssn.AddJobValidFn("counts", func(any) *api.ValidateResult {
			looks++
			return nil
		})
		ssn.Tiers = append(ssn.Tiers, conf.Tier{Plugins: []conf.PluginOption{{Name: "counts"}}})
		p.explainWaiting(ssn)
		if looks != 1 {
			t.Errorf("the job of %d pods was looked at %d times", pods, looks)
		}
		for _, job := range ssn.Jobs {
			texts := map[*api.FitErrors]struct{}{}
			for _, f := range job.NodesFitErrors {
				texts[f] = struct{}{}
			}
			if len(texts) != 1 || len(job.NodesFitErrors) != pods {
				t.Errorf("%d pods are told %d texts", len(job.NodesFitErrors), len(texts))
			}
		}
	}
}

// What a session pays for one job of 8,000 pods that wait, as Volcano leaves it: the nodes said to
// one of them why, and the others were skipped.
func BenchmarkExplainOneJobOf8000Pods(b *testing.B) {
	silence(b)
	p, ssn := gangJob(b, 8000)
	var job *api.JobInfo
	for _, j := range ssn.Jobs {
		job = j
	}
	said := maps.Clone(job.NodesFitErrors)
	b.ResetTimer()
	for range b.N {
		job.NodesFitErrors, p.explained = maps.Clone(said), false
		p.explainWaiting(ssn)
	}
}
