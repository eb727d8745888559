// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/plugins/util"

	"deviceshare/sharing"
)

func TestOnlyPodsWhoseDevicesMakeRoomAreEvictable(t *testing.T) {
	for name, c := range map[string]struct {
		held       []int64 // MiB held by one pod on each of four devices of 10000
		asks       asks
		priorities []int32
		want       []string
	}{
		"one device is made free, not a sum over four": {
			held: []int64{2000, 3000, 2000, 2000}, asks: asks{number: 1}, want: []string{"p3"},
		},
		"pods of high priority are spared": {
			held: []int64{2000, 2000, 2000, 2000}, priorities: []int32{1, 0, 1, 1}, asks: asks{number: 1}, want: []string{"p1"},
		},
		"two devices": {
			held: []int64{9000, 9000, 9000, 9000}, asks: asks{number: 2, memory: 5000}, want: []string{"p2", "p3"},
		},
		"nothing has to leave": {
			held: []int64{9000, 1000, 9000, 9000}, asks: asks{number: 1, memory: 5000},
		},
		"nobody's leaving helps": {
			held: []int64{2000, 2000, 2000, 2000}, asks: asks{number: 1, memory: 12000},
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
			got, vote := p.evictable(api.NewTaskInfo(podOf("new", "g", c.asks)), candidates)
			var names []string
			for _, v := range got {
				names = append(names, v.Name)
			}
			slices.Sort(names)
			if want := append([]string{"cpu"}, c.want...); !slices.Equal(names, want) || vote != util.Permit {
				t.Errorf("evictable %v (%d), want %v", names, vote, want)
			}
			if picture(p.nodes["n1"].ledger) != before {
				t.Error("the question changed the ledger")
			}
		})
	}
}

func TestAPodWithoutDevicesLeavesTheChoiceToOthers(t *testing.T) {
	n1 := infoOf(nodeOf(t, devices("n1", 1, 10000)), nil)
	if got, vote := bare(t, n1).evictable(api.NewTaskInfo(podOf("new", "g", asks{})), nil); vote != util.Abstain || got != nil {
		t.Errorf("%v, %d", got, vote)
	}
}

func TestAPodThatCannotBeReadMayBeEvicted(t *testing.T) {
	odd := boundTo(podOf("odd", "g", asks{number: 1}), "n1")
	n1 := infoOf(nodeOf(t, devices("n1", 1, 10000)), []*corev1.Pod{odd})
	got, _ := bare(t, n1).evictable(api.NewTaskInfo(podOf("new", "g", asks{number: 1})), []*api.TaskInfo{api.NewTaskInfo(odd)})
	if len(got) != 1 || sharing.Owner(got[0].Pod.UID) != "uid-odd" {
		t.Errorf("evictable %v", got)
	}
}
