// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/actions/preempt"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins"
	"volcano.sh/volcano/pkg/scheduler/plugins/priority"

	"deviceshare/sharing"
)

func TestOnlyPodsWhoseDevicesMakeRoomAreEvictable(t *testing.T) {
	for name, c := range map[string]struct {
		held       []int64 // MiB held by one pod on each of four devices of 10000
		asks       asks
		priorities []int32
		dryRuns    bool
		want       []string
	}{
		"one device is made free, not a sum over four": {
			held: []int64{9000, 8500, 9500, 9000}, asks: asks{number: 1, memory: 9200}, want: []string{"cpu", "p0"},
		},
		"pods of high priority are spared": {
			held: []int64{9000, 9000, 9000, 9000}, priorities: []int32{1, 0, 1, 1}, asks: asks{number: 1, memory: 9200}, want: []string{"cpu", "p1"},
		},
		"two devices, whose memory the sums count once, so Volcano would stop halfway": {
			held: []int64{9000, 9900, 9900, 9900}, asks: asks{number: 2, memory: 9950},
		},
		"two devices, when dry runs decide": {
			held: []int64{9000, 9900, 9900, 9900}, asks: asks{number: 2, memory: 9950}, dryRuns: true, want: []string{"cpu", "p0", "p1"},
		},
		"nothing has to leave": {
			held: []int64{9000, 1000, 9000, 9000}, asks: asks{number: 1, memory: 5000}, want: []string{"cpu"},
		},
		"nobody's leaving helps": {
			held: []int64{2000, 2000, 2000, 2000}, asks: asks{number: 1, memory: 12000},
		},
		"the sums have room, so Volcano would evict nobody": {
			held: []int64{3000, 3000, 3000, 3000}, asks: asks{number: 1, memory: 9000},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inv := devices("n1", 4, 10000)
			var pods []*corev1.Pod
			for i, memory := range c.held {
				pod := podOf(fmt.Sprintf("p%d", i), "g", asks{number: 1, memory: memory})
				if c.priorities != nil {
					pod.Spec.Priority = &c.priorities[i]
				}
				pods = append(pods, runningOn(t, pod, "n1", share(inv.Devices[i].ID, memory)))
			}
			pods = append(pods, boundTo(podOf("cpu", "g", asks{}), "n1"))
			n1 := infoOf(nodeOf(t, inv), pods)
			p := bare(t, n1)
			before := picture(p.nodes["n1"].ledger)
			var candidates []*api.TaskInfo
			for _, pod := range pods {
				candidates = append(candidates, api.NewTaskInfo(pod))
			}
			got, opinion := p.evictable(api.NewTaskInfo(podOf("new", "g", c.asks)), candidates, !c.dryRuns)
			var names []string
			for _, v := range got {
				names = append(names, v.Name)
			}
			slices.Sort(names)
			if !slices.Equal(names, c.want) || !opinion {
				t.Errorf("evictable %v (an opinion: %t), want %v", names, opinion, c.want)
			}
			if picture(p.nodes["n1"].ledger) != before {
				t.Error("the question changed the ledger")
			}
		})
	}
}

func TestAPodWithoutDevicesLeavesTheChoiceToOthers(t *testing.T) {
	n1 := infoOf(nodeOf(t, devices("n1", 1, 10000)), nil)
	if got, opinion := bare(t, n1).evictable(api.NewTaskInfo(podOf("new", "g", asks{})), nil, true); opinion || got != nil {
		t.Errorf("%v, %t", got, opinion)
	}
}

func TestAPodThatCannotBeReadMayBeEvicted(t *testing.T) {
	odd := boundTo(podOf("odd", "g", asks{number: 1}), "n1")
	n1 := infoOf(nodeOf(t, devices("n1", 1, 10000)), []*corev1.Pod{odd})
	got, _ := bare(t, n1).evictable(api.NewTaskInfo(podOf("new", "g", asks{number: 1})), []*api.TaskInfo{api.NewTaskInfo(odd)}, false)
	if len(got) != 1 || sharing.Owner(got[0].Pod.UID) != "uid-odd" {
		t.Errorf("evictable %v", got)
	}
}

func TestPreemptionEvictsTheOnePodThatMakesRoom(t *testing.T) {
	low := func(name, device string, memory int64) *corev1.Pod {
		pod := runningOn(t, podOf(name, "low", asks{number: 1, memory: memory}), "n1", share(sharing.DeviceID(device), memory))
		pod.Annotations[schedulingv1beta1.PodPreemptable] = "true"
		return pod
	}
	high := groupOf("high", 1)
	high.Spec.PriorityClassName = "high"
	// 6000 MiB are taken of either device, in one share of the first and in two of
	// the second: one pod has to leave for a pod of 9000, and it is that of the first.
	w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("low", 0), high,
		low("a", "GPU-n1-0", 6000), low("b", "GPU-n1-1", 3000), low("c", "GPU-n1-1", 3000), podOf("new", "high", asks{number: 1, memory: 9000}))
	w.cache.AddPriorityClass(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 100})
	framework.RegisterPluginBuilder(priority.PluginName, priority.New)
	o := conf.PluginOption{Name: priority.PluginName}
	plugins.ApplyPluginConfDefaults(&o)
	// Only plugins of the first tier that names victims have a say, and one that
	// comes after ours would begin anew when nobody is left.
	w.tiers = []conf.Tier{{Plugins: append(append(w.tiers[0].Plugins, o), w.tiers[1].Plugins...)}}

	ssn := w.open()
	defer framework.CloseSession(ssn)
	conf.EnabledActionMap = map[string]bool{"allocate": true, "preempt": true}
	allocate.New().Execute(ssn)
	preempt.New().Execute(ssn)
	var leaving []string
	for _, task := range ssn.Nodes["n1"].Tasks {
		if task.Status == api.Releasing {
			leaving = append(leaving, task.Name)
		}
	}
	if !slices.Equal(leaving, []string{"a"}) {
		t.Errorf("evicted %v", leaving)
	}
	if r := w.plugin.overlay.placed["uid-new"]; r.node != "n1" || r.placement.Containers[0].Shares[0].Device != "GPU-n1-0" {
		t.Errorf("promised %+v", r)
	}
}
