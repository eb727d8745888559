// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/snapshot"
	"deviceshare/plugins/deviceshare/waiting"
	"deviceshare/sharing"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/wire"
)

// walk does to a session, at random, what actions do.
type walk struct {
	t     *testing.T
	w     *world
	r     *rand.Rand
	ssn   *framework.Session
	stmt  *framework.Statement
	bases map[string]string
	log   []string
	// remembered is how often a pod asked of whose kind answers are remembered.
	remembered int
}

func TestAnySequenceOfEventsLeavesWhatTheSnapshotSays(t *testing.T) {
	silence(t)
	for seed := range uint64(6) {
		w := newWorld(t, crowd(t)...)
		if seed%2 == 0 {
			w.cache.AddQueueV1beta1(queueOf("default", corev1.ResourceList{wire.ResourceMemory: resource.MustParse("1Gi")})) // has to count, and never refuses
		}
		for i := range 25 {
			k := &walk{t: t, w: w, r: rand.New(rand.NewPCG(seed, uint64(i))), bases: map[string]string{}}
			w.args[argPolicy] = policy.Names()[k.r.IntN(len(policy.Names()))]
			w.args[argModeWeight+string(sharing.HAMiCore)] = k.r.IntN(3)
			k.session(i == 24)
			if k.remembered == 0 {
				t.Error("nothing was ever remembered")
			}
			if t.Failed() {
				t.Fatalf("seed %d.%d: %v", seed, i, k.log)
			}
		}
		w.idle = true
		w.settled()
		settings, scratch := nodes.DefaultSettings(), nodes.NewCluster(w.store.backends, w.report)
		ssn := w.open()
		scratch.Follow(snapshot.Of(ssn, sessionObjects{}.podsOf(ssn)), &settings, w.store.now())
		for name, n := range w.store.cluster.Nodes() {
			if err := n.Ledger.Check(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			if got, want := picture(n.Ledger), picture(scratch.Nodes()[name].Ledger); got != want {
				t.Errorf("seed %d: node %s is\n%s\nread from scratch\n%s", seed, name, got, want)
			}
		}
	}
}

// crowd is two nodes with pods on them and pods that wait, some of them with
// several containers and devices.
func crowd(t *testing.T) []runtime.Object {
	out := []runtime.Object{nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 2, 10000)), groupOf("old", 1), groupOf("new", 1)}
	for i, memory := range []int64{3000, 4000, 5000, 9000} {
		node := []string{"n1", "n1", "n2", "n2"}[i]
		device := sharing.DeviceID(fmt.Sprintf("GPU-%s-%d", node, i%2))
		out = append(out, runningOn(t, podOf(fmt.Sprintf("old-%d", i), "old", asks{number: 1, memory: memory}), node, share(device, memory)))
	}
	for i, a := range [][]asks{
		{{number: 1, memory: 2000}}, {{number: 1, memory: 6000}}, {{number: 2, memory: 1000, cores: 40}},
		{{number: 1}}, {{number: 1, memory: 3000}, {number: 1, memory: 3000}}, {{number: 1, memory: 5000, cores: 60}},
		{{number: 1, memory: 2000}}, {{}}, {{}},
	} {
		out = append(out, withCPU(podOf(fmt.Sprintf("new-%d", i), "new", a...), int64(i%3)*15))
	}
	// Of two pods that ask for the same, one is kept away from a device, and by one that waits.
	out[5].(*corev1.Pod).Annotations[wire.UserNotBeside] = "app=llm"
	out[8].(*corev1.Pod).Labels = map[string]string{"app": "llm"}
	out[9].(*corev1.Pod).Annotations[wire.UserNotBeside] = "app=llm"
	out[12].(*corev1.Pod).Annotations[wire.UserNeighbours] = "none"
	return out
}

func (k *walk) session(commit bool) {
	k.ssn = k.w.open()
	for name, n := range k.w.plugin.nodes {
		k.bases[name] = picture(n.Ledger)
	}
	k.stmt = framework.NewStatement(k.ssn)
	for range 40 {
		k.step()
		k.check()
		if k.t.Failed() {
			break
		}
	}
	if commit {
		k.stmt.Commit()
	}
	framework.CloseSession(k.ssn)
}

func (k *walk) step() {
	node := k.ssn.Nodes[[]string{"n1", "n2"}[k.r.IntN(2)]]
	switch op := k.r.IntN(13); {
	case op < 5:
		if t := k.pick(api.Pending); t != nil && judgedNow(t, node) {
			k.note("allocate", t, node)
			if err := k.stmt.Allocate(t, node); err != nil {
				k.note("unallocate", t, node)
				_ = k.stmt.UnAllocate(t)
			}
		}
	case op < 7:
		if t := k.pick(api.Pending); t != nil {
			k.note("pipeline", t, node)
			if err := k.stmt.Pipeline(t, node.Name, false); err != nil {
				k.t.Errorf("pipeline: %v", err)
			}
		}
	case op < 9:
		if t := k.pick(api.Running); t != nil {
			k.note("evict", t, k.ssn.Nodes[t.NodeName])
			if err := k.stmt.Evict(t, "walk"); err != nil {
				k.t.Errorf("evict: %v", err)
			}
		}
	case op == 9:
		k.log = append(k.log, "discard")
		k.stmt.Discard()
		k.stmt = framework.NewStatement(k.ssn)
	case op == 10:
		k.log = append(k.log, "save, discard, recover")
		saved := framework.SaveOperations(k.stmt)
		k.stmt.Discard()
		k.check()
		k.stmt = framework.NewStatement(k.ssn)
		_ = k.stmt.RecoverOperations(saved)
	case op == 11:
		k.log = append(k.log, "learn")
		k.w.store.mix.Read(k.w.plugin.cluster())
		k.w.plugin.useLearned()
	default:
		if t := k.pick(api.Pending); t != nil {
			_ = k.ssn.PrePredicateFn(t)
			_ = k.ssn.PredicateFn(t, node)
		}
	}
}

func (k *walk) note(what string, t *api.TaskInfo, n *api.NodeInfo) {
	k.log = append(k.log, what+" "+t.Name+" "+n.Name)
}

// pick draws a task of a status.
func (k *walk) pick(status api.TaskStatus) *api.TaskInfo {
	var all []*api.TaskInfo
	for _, j := range k.ssn.Jobs {
		for _, t := range j.TaskStatusIndex[status] {
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *api.TaskInfo) int { return int(a.Name[len(a.Name)-1]) - int(b.Name[len(b.Name)-1]) })
	return all[k.r.IntN(len(all))]
}

// check compares the overlay with what follows from the session's nodes.
func (k *walk) check() {
	k.t.Helper()
	k.checkQuota()
	k.checkAnswers()
	o := k.w.plugin.overlay
	for name, n := range k.w.plugin.nodes {
		if got := picture(n.Ledger); got != k.bases[name] {
			k.t.Errorf("the snapshot of %s was changed:\n%s\nwas\n%s", name, got, k.bases[name])
		}
		now, promised := n.Ledger.Fork(), false
		future := n.Ledger.Fork()
		for _, t := range k.ssn.Nodes[name].Tasks {
			owner := sharing.Owner(t.Pod.UID)
			r, placed := o.placed[owner]
			switch {
			case t.Status == api.Releasing:
				future.Release(owner)
			case t.Status == api.Allocated && !placed && k.w.plugin.askOf(t) != nil:
				k.t.Errorf("%s is allocated and holds nothing", t.Name)
			case (t.Status == api.Allocated || t.Status == api.Pipelined) && placed:
				if r.node != name {
					k.t.Errorf("%s is on %s and holds devices of %s", t.Name, name, r.node)
				}
				now.Record(owner, r.placement)
				future.Record(owner, r.placement)
				promised = promised || t.Status == api.Pipelined
			}
		}
		if got, want := picture(o.currentLedger(n)), picture(now); got != want {
			k.t.Errorf("%s now is\n%s\nwant\n%s", name, got, want)
		}
		if got, want := picture(o.futureLedger(n, k.ssn.Nodes[name])), picture(future); got != want {
			k.t.Errorf("%s in the future is\n%s\nwant\n%s", name, got, want)
		}
		if err := now.Check(); err != nil && !promised {
			k.t.Error(err)
		}
	}
}

// checkQuota compares what the queue is said to take with what its tasks hold.
func (k *walk) checkQuota() {
	k.t.Helper()
	p := k.w.plugin
	if p.limits == nil {
		return
	}
	for _, j := range k.ssn.Jobs {
		for _, t := range j.Tasks {
			owner := sharing.Owner(t.Pod.UID)
			var want int64
			if t.Status == api.Running || t.Status == api.Allocated || t.Status == api.Pipelined || t.Status == api.Releasing {
				held, known := p.overlay.currentLedger(p.nodes[t.NodeName]).Placement(owner)
				if req := p.Request(t); !known && req != nil {
					want = int64(waiting.MemoryOf(req, p.store.largest)) // promised, and the devices do not fit after all
				}
				devices := map[sharing.DeviceID]int64{}
				for _, c := range held.Containers {
					for _, s := range c.Shares {
						want += int64(s.Memory)
						devices[s.Device] = 10000 << 20
					}
				}
				if t.Pod.Annotations[wire.UserNeighbours] == "none" { // each of its devices as a whole, at least one
					want = max(1, int64(len(devices))) * 10000 << 20
				}
			}
			var got int64
			for _, part := range p.limits.Takes(owner) {
				got += part.Memory
			}
			if got != want {
				k.t.Errorf("%s takes %d, want %d", t.Name, got, want)
			}
		}
	}
}

// picture is a ledger as text.
func picture(l *sharing.Ledger) string {
	text := ""
	for _, o := range l.Owners() {
		p, _ := l.Placement(o)
		text += fmt.Sprintf("%s: %+v\n", o, p.Containers)
	}
	for i := range l.Views() {
		v := &l.Views()[i]
		text += fmt.Sprintf("%s: %v %d%% %d\n", v.Device.ID, v.UsedMemory(), v.UsedCores(), v.Sharers())
	}
	return text
}
