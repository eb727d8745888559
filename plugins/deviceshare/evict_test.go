// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestOnlyPodsWhoseDevicesMakeRoomAreEvictable(t *testing.T) {
	for name, c := range map[string]struct {
		held       []int64 // MiB held by one pod on each of four devices of 10000
		asks       asks
		priorities []int32
		how        eviction
		abstains   bool
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
			held: []int64{9000, 9900, 9900, 9900}, asks: asks{number: 2, memory: 9950}, how: preemptByDryRun, want: []string{"cpu", "p0", "p1"},
		},
		"nothing has to leave": {
			held: []int64{9000, 1000, 9000, 9000}, asks: asks{number: 1, memory: 5000}, abstains: true,
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
			before := picture(p.nodes["n1"].Ledger)
			var candidates []*api.TaskInfo
			for _, pod := range pods {
				candidates = append(candidates, api.NewTaskInfo(pod))
			}
			got, opinion := p.chooseVictims(api.NewTaskInfo(podOf("new", "g", c.asks)), candidates, everybody, c.how)
			var names []string
			for _, v := range got {
				names = append(names, v.Name)
			}
			slices.Sort(names)
			if !slices.Equal(names, c.want) || opinion == c.abstains {
				t.Errorf("evictable %v (an opinion: %t), want %v", names, opinion, c.want)
			}
			if picture(p.nodes["n1"].Ledger) != before {
				t.Error("the question changed the ledger")
			}
		})
	}
}

// everybody is what other plugins say that have no opinion.
func everybody(_ *api.TaskInfo, candidates []*api.TaskInfo) []*api.TaskInfo { return candidates }

func TestAPodWithoutDevicesLeavesTheChoiceToOthers(t *testing.T) {
	n1 := infoOf(nodeOf(t, devices("n1", 1, 10000)), nil)
	if got, opinion := bare(t, n1).chooseVictims(api.NewTaskInfo(podOf("new", "g", asks{})), nil, everybody, preemptByTotals); opinion || got != nil {
		t.Errorf("%v, %t", got, opinion)
	}
}

func TestAPodThatCannotBeReadMayBeEvicted(t *testing.T) {
	odd := boundTo(podOf("odd", "g", asks{number: 1}), "n1")
	odd.Annotations[wire.PodPlacement] = "{"
	n1 := infoOf(nodeOf(t, devices("n1", 1, 10000)), []*corev1.Pod{odd})
	got, _ := bare(t, n1).chooseVictims(api.NewTaskInfo(podOf("new", "g", asks{number: 1})), []*api.TaskInfo{api.NewTaskInfo(odd)}, everybody, preemptByDryRun)
	if len(got) != 1 || sharing.Owner(got[0].Pod.UID) != "uid-odd" {
		t.Errorf("evictable %v", got)
	}
}
