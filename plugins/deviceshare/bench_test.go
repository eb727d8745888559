// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/api/devices/config"
	"volcano.sh/volcano/pkg/scheduler/api/devices/nvidia/vgpu"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/sharing/factory"
	"deviceshare/sharing/wire"
)

// full is a node of 8 devices with 5 shares of 1500 MiB and 15 % on each: 2500
// MiB and 25 % are left of every device.
func full(t testing.TB, name string) (*corev1.Node, []*corev1.Pod) {
	inv := devices(name, 8, 10000)
	var pods []*corev1.Pod
	for i := range 40 {
		s := share(inv.Devices[i%8].ID, 1500)
		s.Cores = 15
		pod := podOf(fmt.Sprintf("%s-%d", name, i), "g", asks{number: 1, memory: 1500, cores: 15})
		pods = append(pods, runningOn(t, pod, name, s))
	}
	return nodeOf(t, inv), pods
}

func infoOf(node *corev1.Node, pods []*corev1.Pod) *api.NodeInfo {
	info := api.NewNodeInfo(node)
	for _, p := range pods {
		_ = info.AddTask(api.NewTaskInfo(p))
	}
	return info
}

// sessionOf is a session over the nodes, without a cache behind it.
func sessionOf(infos ...*api.NodeInfo) (*framework.Session, map[string]*api.NodeInfo) {
	nodes := map[string]*api.NodeInfo{}
	for _, i := range infos {
		nodes[i.Name] = i
	}
	return &framework.Session{Nodes: nodes, NodeList: infos}, nodes
}

// bare returns a plugin in a session over the nodes.
func bare(t testing.TB, infos ...*api.NodeInfo) *Plugin {
	t.Helper()
	s := NewStore(Options{Backends: factory.New(), Report: &reportRecorder{}})
	s.objects = noObjects{}
	p := s.Build(framework.Arguments{}).(*Plugin)
	ssn, _ := sessionOf(infos...)
	p.joinSession(ssn)
	return p
}

// silence throws the log away: formatting it is part of what is measured, the
// terminal is not.
func silence(t testing.TB) {
	t.Helper()
	flags := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	klog.SetOutput(io.Discard)
}

// BenchmarkPredicate asks the same question of our predicate and of the vgpu
// package of Volcano v1.14.1: does a pod fit on a node of 8 devices that carries
// 40 shares?
func BenchmarkPredicate(b *testing.B) {
	silence(b)
	node, pods := full(b, "n1")
	info := infoOf(node, pods)
	p := bare(b, info)
	theirs := inTree(b, node, pods)
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		fits bool
	}{
		{"fit", podOf("new", "g", asks{number: 1, memory: 2000, cores: 20}), true},
		{"refuse", podOf("new", "g", asks{number: 1, memory: 3000, cores: 20}), false},
		{"several-fit", podOf("new", "g", asks{number: 4, memory: 2000, cores: 20}), true},
	} {
		task := api.NewTaskInfo(c.pod)
		p.rememberAsk(task)
		b.Run(c.name, func(b *testing.B) {
			compare(b, func() {
				if (p.predicate(task, info) == nil) != c.fits {
					b.Fatal(p.predicate(task, info))
				}
			}, func() {
				code, text, _ := theirs.FilterNode(c.pod, "binpack")
				if (code == api.Success) != c.fits {
					b.Fatal(code, text)
				}
			})
		})
	}
}

func BenchmarkKnownFit(b *testing.B) {
	silence(b)
	for _, n := range []int{200, 1000, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			infos := make([]*api.NodeInfo, n)
			for i := range infos {
				infos[i] = infoOf(full(b, fmt.Sprintf("n%05d", i)))
			}
			p := bare(b, infos...)
			var task *api.TaskInfo
			ask := func() {
				for _, info := range infos {
					if err := p.predicate(task, info); err != nil {
						b.Fatal(err)
					}
				}
			}
			for _, name := range []string{"a", "b", "c"} {
				task = api.NewTaskInfo(podOf(name, "g", asks{number: 1, memory: 2500, cores: 20}))
				if err := p.prePredicate(task); err != nil {
					b.Fatal(err)
				}
				ask()
			}
			for b.Loop() {
				ask()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/node")
		})
	}
}

// BenchmarkDecision is BenchmarkPredicate without what Volcano's interface makes
// of a refusal: an error of its own type with a text, which cannot be had without
// allocating. "refuse-other" asks for something else every time, so that no node
// remembers its answer.
func BenchmarkDecision(b *testing.B) {
	silence(b)
	node, pods := full(b, "n1")
	info := infoOf(node, pods)
	p := bare(b, info)
	theirs := inTree(b, node, pods)
	tasks := map[string][]*api.TaskInfo{}
	for name, amounts := range map[string][2]int64{"refuse": {3000, 3000}, "refuse-other": {4000, 5000}} {
		for i, amount := range amounts {
			task := api.NewTaskInfo(podOf(fmt.Sprintf("%s-%d", name, i), "g", asks{number: 1, memory: amount, cores: 20}))
			p.rememberAsk(task)
			tasks[name] = append(tasks[name], task)
		}
	}
	for _, name := range []string{"refuse", "refuse-other"} {
		pair, turn := tasks[name], 0
		b.Run(name, func(b *testing.B) {
			compare(b, func() {
				turn++
				task := pair[turn%2]
				if refused, _ := p.checkDevices(p.askOf(task), p.nodes[info.Name], task, info, nil); !refused.Refused() {
					b.Fatal("fits")
				}
			}, func() {
				if code, _, _ := theirs.FilterNode(pair[0].Pod, "binpack"); code == api.Success {
					b.Fatal("fits")
				}
			})
		})
	}
}

// compare runs both in turns, so that whatever else the machine does slows both
// alike, and reports both and how many times faster ours is. For make instructions it runs ours
// only.
func compare(b *testing.B, ours, inTree func()) {
	if os.Getenv("DEVICESHARE_BENCH") == "ours" {
		for b.Loop() {
			ours()
		}
		return
	}
	const turn = 100
	var spent [2]time.Duration
	for b.Loop() {
		for i, f := range []func(){ours, inTree} {
			start := time.Now()
			for range turn {
				f()
			}
			spent[i] += time.Since(start)
		}
	}
	runs := float64(b.N * turn)
	b.ReportMetric(0, "ns/op") // both together, which says nothing
	b.ReportMetric(float64(spent[0].Nanoseconds())/runs, "ours-ns/op")
	b.ReportMetric(float64(spent[1].Nanoseconds())/runs, "in-tree-ns/op")
	b.ReportMetric(testing.AllocsPerRun(turn, ours), "ours-allocs/op")
	b.ReportMetric(testing.AllocsPerRun(turn, inTree), "in-tree-allocs/op")
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "x-faster")
}

// inTree is the node as the vgpu package keeps it.
func inTree(t testing.TB, node *corev1.Node, pods []*corev1.Pod) *vgpu.GPUDevices {
	t.Helper()
	vgpu.VGPUEnable = true
	config.InitDevicesConfig("", "")
	node = node.DeepCopy()
	// A handshake that is under way: any other makes the constructor call the API
	// server.
	node.Annotations[wire.NodeHandshake] = "Requesting_" + time.Now().Format("2006.01.02 15:04:05")
	d := vgpu.NewGPUDevices("hamivgpu", node)
	if d == nil {
		t.Fatal("the in-tree code sees no devices")
	}
	for _, p := range pods {
		d.AddResource(p)
	}
	return d
}

// BenchmarkSessionOpen brings the ledgers of 5,000 nodes with 8 devices and
// 80,000 pods up to date: when nothing has changed since the last session, when
// pods on 50 nodes have, and for the first time.
func BenchmarkSessionOpen(b *testing.B) {
	const nodes, perNode = 5000, 16
	var infos []*api.NodeInfo
	for i := range nodes {
		inv := devices(fmt.Sprintf("node-%d", i), 8, 10000)
		var pods []*corev1.Pod
		for j := range perNode {
			pod := podOf(fmt.Sprintf("pod-%d-%d", i, j), "g", asks{number: 1, memory: 1500})
			pods = append(pods, runningOn(b, pod, inv.Node, share(inv.Devices[j%8].ID, 1500)))
		}
		infos = append(infos, infoOf(nodeOf(b, inv), pods))
	}
	p := bare(b, infos...)
	// Volcano copies every node and task for every session: the pods stay, what
	// holds them does not, and so nothing of it is in the processor's cache.
	for i := range infos {
		infos[i] = infos[i].Clone()
	}
	ssn, _ := sessionOf(infos...)
	session := func(s *Store) {
		next := s.Build(framework.Arguments{}).(*Plugin)
		next.joinSession(ssn)
		next.OnSessionClose(ssn)
	}
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			session(p.store)
		}
	})
	b.Run("50-changed", func(b *testing.B) {
		for b.Loop() {
			for i := range 50 {
				for _, t := range infos[i].Tasks {
					t.Pod = t.Pod.DeepCopy()
					break
				}
			}
			session(p.store)
		}
	})
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			s := NewStore(Options{Backends: factory.New(), Report: &reportRecorder{}})
			s.objects = noObjects{}
			session(s)
		}
	})
}
