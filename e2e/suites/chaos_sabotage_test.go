// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/laboratory/chaos"
	"deviceshare/e2e/report"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// saboteur breaks promises of the cluster, as a bug of the product would.
type saboteur struct {
	*world
	t        *testing.T
	ctx      context.Context
	user     *user.User
	observer *chaos.Observer
}

// testSabotage breaks each promise that package chaos checks in turn. What finds it does not know
// what was done.
func testSabotage(t *testing.T, w *world) {
	w.inChaos(t, "sabotage", func(ctx context.Context, u *user.User) { w.sabotageIsFound(ctx, t, u) })
}

func (w *world) sabotageIsFound(ctx context.Context, t *testing.T, u *user.User) {
	for name, sabotage := range map[string]func(saboteur){
		"a share is given twice":              saboteur.giveTwice,
		"a limit is raised":                   saboteur.raiseLimit,
		"a partition gets a second owner":     saboteur.sharePartition,
		"a partition is destroyed":            saboteur.destroyPartition,
		"a placement is edited":               saboteur.editPlacement,
		"a pod is killed":                     saboteur.killPod,
		"a pod is evicted that is spared":     saboteur.evictSpared,
		"a specification is left on the node": saboteur.leaveFile,
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			observer, err := chaos.NewObserver(w.cluster)
			if err != nil {
				t.Fatal(err)
			}
			s := saboteur{w, t, ctx, u, observer}
			s.nothingLeft()
			s.innocent()
			sabotage(s)
			if err := u.DeleteAll(ctx); err != nil {
				t.Fatal(err)
			}
			s.nothingLeft()
		})
	}
}

// innocent wants that nothing is found before anything is done.
func (s saboteur) innocent() {
	s.t.Helper()
	if got := s.look(); len(got) != 0 {
		s.t.Fatalf("nothing was done, and found: %q", got)
	}
}

func (s saboteur) look() []chaos.Violation {
	s.t.Helper()
	sight, err := s.observer.Look(s.ctx)
	if err == nil {
		err = sight.Ledger
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return sight.Violations
}

// found looks until a violation of a promise is found whose text has the words.
func (s saboteur) found(promise, words string) {
	s.t.Helper()
	for {
		got := s.look()
		for _, v := range got {
			if v.Promise == promise && strings.Contains(v.Text, words) {
				s.t.Logf("found: %s", v)
				return
			}
		}
		if sleep(s.ctx, 200*time.Millisecond); s.ctx.Err() != nil {
			s.t.Fatalf("%q of promise %s was not found, but %q", words, promise, got)
		}
	}
}

// start runs a pod in a mode. Its container begins with a line of shell.
func (s saboteur) start(name, mode string, ask workload.Ask, line string) *corev1.Pod {
	s.t.Helper()
	p := pod(name).App("main", ask).Annotate(wire.UserMode, mode).Edit(func(p *corev1.Pod) {
		p.Spec.Containers[0].Command = []string{"/bin/sh", "-c", line}
	}).Build()
	if err := s.user.Create(s.ctx, p); err != nil {
		s.t.Fatal(err)
	}
	p, err := s.user.WaitRunning(s.ctx, name)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// waits is a line of shell that waits until a file is there, and then runs the CUDA client.
const waits = "until [ -e /tmp/go ]; do sleep 0.2; done; exec /usr/bin/cudaclient "

// giveTwice binds a second pod with the placement of a first one.
func (s saboteur) giveTwice() {
	ask := workload.Ask{Number: 1, Memory: 60000}
	owner := s.start("owner", string(sharing.HAMiCore), ask, "exec /usr/bin/cudaclient forever")
	thief := pod("thief").App("main", ask, "forever").Edit(func(p *corev1.Pod) { p.Spec.SchedulerName = "by-hand" }).Build()
	if err := s.user.Create(s.ctx, thief); err != nil {
		s.t.Fatal(err)
	}
	s.innocent()
	s.bindWith(s.ctx, s.t, s.user.Namespace(), thief.Name, owner.Annotations)
	s.found("shares", "were given of")
}

// raiseLimit edits the limits of a container before its program reads them.
func (s saboteur) raiseLimit() {
	p := s.start("greedy", string(sharing.HAMiCore), workload.Ask{Number: 1, Memory: 1000},
		waits+"alloc 900 expect ok alloc 3000 expect ok forever")
	in := s.inside(p) + "/root"
	raised := fmt.Sprint(int64(8000) << 20)
	// The file stays the same one: it is mounted into the container, read-only there.
	s.run("file=$(grep -l 'memory=%d' "+recordsOnNode+"/hami-core/containers/*/limits) && "+
		"text=$(sed 's/memory=%d/memory=%s/' $file) && echo \"$text\" > $file && touch %s/tmp/go", 1000<<20, 1000<<20, raised, in)
	s.found("memory", "its limit is 1048576000")
}

// recordsOnNode is the directory of the device plugin's records.
const recordsOnNode = "/var/lib/deviceshare"

// sharePartition shows a container the partition of another one instead of its own.
func (s saboteur) sharePartition() {
	ask := workload.Ask{Number: 1, Memory: 5000}
	owner := s.start("owner", string(sharing.MIG), ask, "exec /usr/bin/cudaclient alloc 100 expect ok forever")
	second := s.start("second", string(sharing.MIG), ask, waits+"alloc 100 expect ok forever")
	s.innocent()
	from, to := s.inside(owner)+"/root/dev/nvidia-caps", s.inside(second)+"/root/dev/nvidia-caps"
	s.run("rm -f %s/* && cp -a %s/. %s/ && touch %s/../../tmp/go", to, from, to, to)
	s.found("partitions", "is used by containers")
}

// destroyPartition destroys a partition whose container is not at work in it.
func (s saboteur) destroyPartition() {
	p := s.start("idle", string(sharing.MIG), workload.Ask{Number: 1, Memory: 5000}, "exec /usr/bin/cudaclient forever")
	s.innocent()
	placed, err := user.Placement(p)
	if err != nil {
		s.t.Fatal(err)
	}
	share := placed.Containers[0].Shares[0]
	show, err := s.cluster.FakeGPU(s.ctx, "show")
	if err != nil {
		s.t.Fatal(err)
	}
	index, device := "", ""
	for line := range strings.Lines(show) {
		if strings.HasPrefix(line, "device ") {
			index, device = report.Value(line, "index"), report.Value(line, "uuid")
		}
		isIt := strings.Contains(line, "instance ") && report.Value(line, "start") == fmt.Sprint(share.Partition.Start)
		if isIt && device == string(share.Device) {
			if _, err := s.cluster.FakeGPU(s.ctx, "destroy", index, report.Value(line, "gi")); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	s.found("partitions", "is gone")
}

// editPlacement changes what is written down of a pod that the scheduler knows.
func (s saboteur) editPlacement() {
	p := s.start("edited", string(sharing.HAMiCore), workload.Ask{Number: 1, Memory: 1000, Cores: 5}, "exec /usr/bin/cudaclient forever")
	s.agrees()
	text := strings.Replace(p.Annotations[wire.PodPlacement], `"cores":5`, `"cores":6`, 1)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, wire.PodPlacement, text)
	if _, err := asScheduler(s.t, s.cluster).CoreV1().Pods(p.Namespace).Patch(s.ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.found("ledger", "the scheduler believes")
	if text, err := s.observer.Agree(s.ctx); err != nil || text == "" {
		s.t.Errorf("asked for everything, the scheduler is said to agree (%v)", err)
	}
}

// agrees waits until the scheduler's ledger is what the API server says.
func (s saboteur) agrees() {
	s.t.Helper()
	for {
		text, err := s.observer.Agree(s.ctx)
		if err == nil && text == "" {
			return
		}
		if sleep(s.ctx, 200*time.Millisecond); s.ctx.Err() != nil {
			s.t.Fatalf("nothing was done, and found: %q, %v", text, err)
		}
	}
}

// killPod kills the program of a pod that should have run on.
func (s saboteur) killPod() {
	p := s.start("killed", string(sharing.HAMiCore), workload.Ask{Number: 1, Memory: 1000}, "exec /usr/bin/cudaclient forever")
	residents := chaos.Residents{p.Name: p}
	if got := residents.Gone(s.ctx, s.user); len(got) != 0 {
		s.t.Fatalf("nothing was done, and found: %q", got)
	}
	s.run("kill -9 $(basename %s)", s.inside(p))
	now, err := s.user.WaitDone(s.ctx, p.Name)
	if err != nil {
		s.t.Fatal(err)
	}
	if got := residents.Gone(s.ctx, s.user); len(got) != 1 || got[0].Promise != "residents" {
		s.t.Errorf("a resident that was killed: %q", got)
	}
	if got := chaos.Judge(now, ""); !strings.Contains(got.Wrong, "exit code 137") {
		s.t.Errorf("a pod that was killed: %+v", got)
	}
}

// evictSpared says of a pod, as a scheduler does, that it was evicted.
func (s saboteur) evictSpared() {
	p := s.start("spared", string(sharing.HAMiCore), workload.Ask{Number: 1, Memory: 1000}, "exec /usr/bin/cudaclient forever")
	if err := s.user.Annotate(s.ctx, p.Name, "volcano.sh/preemptable", "false"); err != nil {
		s.t.Fatal(err)
	}
	s.innocent()
	patch := []byte(`{"status":{"conditions":[{"type":"DisruptionTarget","status":"True","reason":"PreemptionByScheduler",` +
		`"message":"makes room on n1 for ml/train-0 (priority 100, this one 0); pods with an annotation are spared"}]}}`)
	pods := asScheduler(s.t, s.cluster).CoreV1().Pods(p.Namespace)
	if _, err := pods.Patch(s.ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		s.t.Fatal(err)
	}
	s.found("evictions", "although its annotation")
}

// leaveFile leaves the specification of a container that is gone.
func (s saboteur) leaveFile() {
	const file = "/run/cdi/volcano.sh-vgpu-left.json"
	s.run("touch %s", file)
	defer s.run("rm %s", file)
	if left, err := s.observer.Left(s.ctx); err != nil || len(left) != 1 || left[0] != file {
		s.t.Errorf("a file was left, and found: %q, %v", left, err)
	}
}

// nothingLeft waits until nothing is left of pods that are gone.
func (s saboteur) nothingLeft() {
	s.t.Helper()
	for {
		left, err := s.observer.Left(s.ctx)
		if err == nil && len(left) == 0 {
			return
		}
		if sleep(s.ctx, 200*time.Millisecond); s.ctx.Err() != nil {
			s.t.Fatalf("left of pods that are gone: %q, %v", left, err)
		}
	}
}

// run runs a line of shell on the node.
func (s saboteur) run(line string, args ...any) string {
	s.t.Helper()
	return s.runOnNode(s.ctx, s.t, line, args...)
}

// inside is insideOf a pod.
func (s saboteur) inside(p *corev1.Pod) string {
	s.t.Helper()
	return s.insideOf(s.ctx, s.t, p)
}
