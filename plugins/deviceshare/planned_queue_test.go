// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/plugins/capacity"
	"volcano.sh/volcano/pkg/scheduler/plugins/proportion"
)

// teamGroup is a group of queue "team" and a priority class.
func teamGroup(class, name string, members int32) runtime.Object {
	g := groupIn("team", name, members)
	g.Spec.PriorityClassName = class
	return g
}

// The queue is full: the least important of its pods leave, wherever they are, and none of another
// queue.
func TestTheLeastImportantPodsLeaveAFullQueue(t *testing.T) {
	for name, c := range map[string]struct {
		capability string
		asks       []asks
		others     []runtime.Object
		evicted    []string
	}{
		"though devices are free": {capability: "memory=20000", asks: []asks{{number: 1}}, evicted: []string{"b"}, others: []runtime.Object{
			on(t, "a", "mid", "n1", 0, 0), on(t, "b", "low", "n2", 0, 0)}},
		"who makes room on the node": {capability: "memory=20000", asks: []asks{{number: 1}}, evicted: []string{"b"}, others: []runtime.Object{
			on(t, "a", "mid", "n1", 0, 0), on(t, "b", "low", "n1", 1, 0), on(t, "c", "others", "n2", 0, 0), on(t, "d", "others", "n2", 1, 0)}},
		"on several nodes": {capability: "memory=30000", asks: []asks{{number: 2}}, evicted: []string{"b", "c"}, others: []runtime.Object{
			on(t, "a", "mid", "n1", 0, 0), on(t, "b", "low", "n1", 1, 0), on(t, "c", "low", "n2", 0, 0), on(t, "d", "others", "n3", 0, 1000)}},
		"one pod rather than several": {capability: "memory=20000", asks: []asks{{number: 1, memory: 8000}}, evicted: []string{"c"}, others: []runtime.Object{
			on(t, "a", "low", "n1", 0, 5000), on(t, "b", "low", "n1", 1, 5000), on(t, "c", "low", "n2", 0, 9000)}},
		"for a gang": {capability: "memory=20000", asks: []asks{{number: 1}, {number: 1}}, evicted: []string{"a", "b"}, others: []runtime.Object{
			on(t, "a", "low", "n1", 0, 0), on(t, "b", "low", "n2", 0, 0)}},
		"nobody if it stays full": {capability: "memory=20000", asks: []asks{{number: 2}}, others: []runtime.Object{
			sparedPod(on(t, "a", "low", "n1", 0, 0)), on(t, "b", "low", "n2", 0, 0)}},
	} {
		for _, beside := range []string{proportion.PluginName, capacity.PluginName} {
			t.Run(name+" beside "+beside, func(t *testing.T) {
				objects := []runtime.Object{groupOf("others", 0), teamGroup("", "low", 0), teamGroup("high", "mid", 0), teamGroup("top", "new", int32(len(c.asks)))}
				for _, node := range []string{"n1", "n2", "n3"} {
					objects = append(objects, nodeOf(t, devices(node, 2, 10000)))
				}
				for _, o := range c.others {
					objects = append(objects, o.DeepCopyObject())
				}
				for i, want := range c.asks {
					objects = append(objects, podOf([]string{"new", "new1"}[i], "new", want))
				}
				l := newLab(t, objects...)
				l.cache.AddQueueV1beta1(queueBelow(t, "team", "", c.capability))
				l.oneTier(beside)
				l.world.actions = []conf.Configuration{{Name: "preempt", Arguments: map[string]any{}}}
				for range 6 {
					l.tick()
				}
				evicted := l.evictions()
				if slices.Sort(evicted); !slices.Equal(evicted, c.evicted) || l.isBound("new") != (len(c.evicted) > 0) {
					t.Errorf("evicted %v, want %v; bound: %v; told %q", evicted, c.evicted, l.isBound("new"), l.status.message("new"))
				}
			})
		}
	}
}
