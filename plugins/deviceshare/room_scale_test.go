// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/actions/enqueue"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins/capacity"
	"volcano.sh/volcano/pkg/scheduler/plugins/proportion"
)

// kaiCase is nodes with 8 devices each, all of them in use by pods of queue "theirs" with one
// device each, and gangs of queue "mine" that wait.
type kaiCase struct {
	gangs, pods, devices int
	spared               int // nodes whose pods may not be evicted
	// different says that no gang is like another one, and that one pod of each node may not be
	// evicted.
	different bool
	// left is how many pods of each node are left, and may move; 0 for all, who may not.
	left int
}

// The cases are those of KAI's tests at scale, test/e2e/scale/kwok_test.go at d5bc503a. They are
// for 500 nodes.
func kaiCases(nodes int) map[string]kaiCase {
	return map[string]kaiCase{
		"0 nobody waits":                    {},
		"1 one device":                      {gangs: 1, pods: 1, devices: 1},
		"2 one job of 250 pods, 8 devices":  {gangs: 1, pods: nodes / 2, devices: 8},
		"3 one job of 500 pods, 8 devices":  {gangs: 1, pods: nodes, devices: 8},
		"4 4,000 single devices":            {gangs: 8 * nodes, pods: 1, devices: 1},
		"5 50 gangs of 10, 8 devices":       {gangs: nodes / 10, pods: 10, devices: 8},
		"6 moves for 41 gangs of 10":        {gangs: 41 * nodes / 500, pods: 10, devices: 8, left: 1},
		"7 ten pods where nine fit":         {gangs: 1, pods: 10, devices: 8, spared: nodes - 9},
		"8 nobody may leave":                {gangs: 8 * nodes, pods: 1, devices: 1, spared: nodes},
		"9 no plan for 500 different jobs":  {gangs: nodes, pods: 1, devices: 8, different: true},
		"M no moves for 500 different jobs": {gangs: nodes, pods: 1, devices: 8, different: true, left: 8},
	}
}

// TestMakingRoomAtScale prints how long it takes to plan the evictions of KAI's cases, in sessions
// over a fake API server: `make rooms`.
func TestMakingRoomAtScale(t *testing.T) {
	text := os.Getenv("DEVICESHARE_ROOM")
	if text == "" {
		t.Skip("takes minutes: make rooms")
	}
	nodes, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("how many nodes? DEVICESHARE_ROOM: %v", err)
	}
	only := os.Getenv("DEVICESHARE_ROOM_CASE")
	for _, beside := range []string{capacity.PluginName, proportion.PluginName} {
		for _, name := range slices.Sorted(maps.Keys(kaiCases(nodes))) {
			if only != "" && name[:1] != only {
				continue
			}
			c := kaiCases(nodes)[name]
			spells, leave, held := c.measure(t, nodes, beside)
			all := time.Duration(0)
			for _, s := range spells {
				all += s
			}
			fmt.Printf("%-10s %-34s %d nodes: %8.1f ms in %d sessions, the longest %.1f, the last %.1f; %d pods have a place, %d leave\n",
				beside, name, nodes, ms(all), len(spells), ms(slices.Max(spells)), ms(spells[len(spells)-1]), held, leave)
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// measure runs sessions until no more room is made. It returns how long the actions took in each.
func (c *kaiCase) measure(t *testing.T, nodes int, beside string) (spells []time.Duration, leave, held int) {
	t.Helper()
	var objects []runtime.Object
	for n := range nodes {
		name := fmt.Sprint("n", n)
		objects = append(objects, nodeOf(t, devices(name, 8, 10000)))
		for d := range cmp.Or(c.left, 8) {
			pod := fmt.Sprintf("p%dx%d", n, d)
			p := withGrace(on(t, pod, pod, name, d, 0), 3600)
			if n < c.spared || c.different && d == 0 {
				sparedPod(p)
			}
			if c.left > 0 {
				movable(p)
			}
			objects = append(objects, groupIn("theirs", pod, 1), p)
		}
	}
	for g := range c.gangs {
		group := fmt.Sprint("g", g)
		objects = append(objects, groupIn("mine", group, int32(c.pods)))
		for i := range c.pods {
			pod := podOf(fmt.Sprintf("%sx%d", group, i), group, asks{number: int64(c.devices)})
			if c.different {
				pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: group, Operator: corev1.TolerationOpExists})
			}
			objects = append(objects, pod)
		}
	}
	for _, o := range objects {
		if g, is := o.(*schedulingv1beta1.PodGroup); is && g.Spec.Queue == "theirs" {
			g.Status.Phase = schedulingv1beta1.PodGroupRunning
		}
	}
	l := newLab(t, objects...)
	l.cache.StatusUpdater = l.status // the fake API server holds no more than 100 changes at once
	l.setLeads(false)
	all := fmt.Sprintf("deserved.number=%d deserved.memory=%d deserved.cores=%d", 8*nodes, 8*nodes*10000, 8*nodes*100)
	l.cache.AddQueueV1beta1(queueFrom(t, "mine", all))
	l.cache.AddQueueV1beta1(queueFrom(t, "theirs", "deserved.number=0 deserved.memory=0 deserved.cores=0"))
	l.oneTier(beside)
	asShipped(l)
	l.world.actions = []conf.Configuration{}
	if c.left > 0 {
		l.world.actions = []conf.Configuration{{Name: "consolidate", Arguments: map[string]any{"after": "0s", "jobs": 64}}}
		l.actions = []framework.Action{enqueue.New(), allocate.New(), consolidateAction{}}
	}
	before := -1
	for before != l.store.room.Holds() || c.different && len(spells) < 12 {
		before = l.store.room.Holds()
		spells = append(spells, l.timeReclaim())
	}
	for _, pod := range l.pods() {
		if l.store.room.IsWanted(pod.UID) {
			leave++
		}
	}
	if c.left > 0 {
		return spells, leave, leave // one moves for each
	}
	return spells, leave, l.store.room.Holds() * c.pods
}

// timeReclaim runs a session and returns how long its actions took that evict.
func (l *lab) timeReclaim() (took time.Duration) {
	l.t.Helper()
	l.seconds.Add(1)
	l.calls.Lock()
	ssn := l.open()
	enableActions(l.actions)
	for _, a := range l.actions {
		begin := time.Now()
		l.store.MakingRoom(a).Execute(ssn)
		if a.Name() == "reclaim" || a.Name() == "preempt" || a.Name() == "consolidate" {
			took += time.Since(begin)
		}
	}
	l.calls.Unlock()
	framework.CloseSession(ssn)
	l.caughtUp()
	return took
}
