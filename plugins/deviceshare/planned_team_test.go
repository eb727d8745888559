// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"volcano.sh/apis/pkg/apis/batch/v1alpha1"
	"volcano.sh/volcano/pkg/scheduler/conf"

	"deviceshare/sharing/wire"
)

// plannedTeam is a cluster of nodes with two devices in which pods wait that start together.
type plannedTeam struct {
	nodes  int
	asks   []asks // of each pod
	roles  []string
	least  map[string]int32 // how many of each role it needs
	others []runtime.Object
	change func(*lab)
	engine string
	// evicted are the pods that have to leave; all pods are bound then, and only then.
	evicted []string
}

func (c *plannedTeam) run(t *testing.T) {
	t.Helper()
	group := important("high", "team", int32(len(c.asks)))
	group.Spec.MinTaskMember = c.least
	objects := append([]runtime.Object{groupOf("low", 0), group}, c.others...)
	for n := range c.nodes {
		objects = append(objects, nodeOf(t, devices(fmt.Sprint("n", n+1), 2, 10000)))
	}
	for i, want := range c.asks {
		pod := podOf(fmt.Sprint("new", i), "team", want)
		if c.roles != nil {
			pod.Annotations[v1alpha1.TaskSpecKey] = c.roles[i]
		}
		objects = append(objects, pod)
	}
	l := newLab(t, objects...)
	l.world.actions = []conf.Configuration{{Name: "preempt", Arguments: map[string]any{}}}
	if c.engine != "" {
		l.world.actions[0].Arguments["engine"] = c.engine
	}
	if c.change != nil {
		c.change(l)
		l.caughtUp()
	}
	for range 6 {
		l.tick()
	}
	evicted := l.evictions()
	slices.Sort(evicted)
	bound := 0
	for i := range c.asks {
		if l.isBound(fmt.Sprint("new", i)) {
			bound++
		}
	}
	if want := len(c.asks) * min(1, len(c.evicted)); !slices.Equal(evicted, c.evicted) || bound != want {
		t.Errorf("evicted %v, want %v; %d bound, want %d; told %q", evicted, c.evicted, bound, want, l.status.message("new0"))
	}
}

var twoDevices = []asks{{number: 1}, {number: 1}}

func TestForPodsThatStartTogetherAllRoomIsMadeOrNone(t *testing.T) {
	for name, c := range map[string]plannedTeam{
		"on two nodes": {nodes: 2, asks: twoDevices, evicted: []string{"a", "c"}, others: []runtime.Object{
			on(t, "a", "low", "n1", 0, 0), sparedPod(on(t, "b", "low", "n1", 1, 0)),
			on(t, "c", "low", "n2", 0, 0), sparedPod(on(t, "d", "low", "n2", 1, 0))}},
		"where one place is missing": {nodes: 2, asks: twoDevices, others: []runtime.Object{
			on(t, "a", "low", "n1", 0, 0), sparedPod(on(t, "b", "low", "n1", 1, 0)),
			sparedPod(on(t, "c", "low", "n2", 0, 0)), sparedPod(on(t, "d", "low", "n2", 1, 0))}},
		"with a place that is free": {nodes: 2, asks: twoDevices, evicted: []string{"a"}, others: []runtime.Object{
			on(t, "a", "low", "n1", 0, 0), sparedPod(on(t, "b", "low", "n1", 1, 0)), sparedPod(on(t, "c", "low", "n2", 0, 0))}},
		"by one pod that has room for both": {nodes: 2, asks: []asks{{number: 1, memory: 5000}, {number: 1, memory: 5000}}, evicted: []string{"a"}, others: []runtime.Object{
			on(t, "a", "low", "n1", 0, 0), sparedPod(on(t, "b", "low", "n1", 1, 0)),
			on(t, "c", "low", "n2", 0, 5000), on(t, "d", "low", "n2", 0, 5000), sparedPod(on(t, "e", "low", "n2", 1, 0))}},
		"of different sizes": {nodes: 2, asks: []asks{{number: 1, memory: 2000}, {number: 2}}, evicted: []string{"a", "b", "d"}, others: []runtime.Object{
			on(t, "a", "low", "n1", 0, 0), on(t, "b", "low", "n1", 1, 0),
			sparedPod(on(t, "c", "low", "n2", 0, 0)), on(t, "d", "low", "n2", 1, 4000), sparedPod(on(t, "e", "low", "n2", 1, 5000))}},
		"not by Volcano": {nodes: 1, asks: twoDevices, engine: "volcano", others: []runtime.Object{on(t, "a", "low", "n1", 0, 0), on(t, "b", "low", "n1", 1, 0)}},
		"for pods of roles": {nodes: 1, asks: twoDevices, roles: []string{"master", "worker"}, least: map[string]int32{"master": 1, "worker": 1},
			evicted: []string{"a", "b"}, others: []runtime.Object{on(t, "a", "low", "n1", 0, 0), on(t, "b", "low", "n1", 1, 0)}},
	} {
		t.Run(name, func(t *testing.T) { c.run(t) })
	}
}

func TestPodsThatStartTogetherBreakNoGangIfOthersWouldDo(t *testing.T) {
	c := plannedTeam{nodes: 4, asks: twoDevices, change: keepsNoGangs, evicted: []string{"c", "d"}, others: []runtime.Object{groupOf("gang", 2)}}
	for n, name := range []string{"a", "b", "c", "d"} {
		group := "gang"
		if n > 1 {
			group = "low"
		}
		node := fmt.Sprint("n", n+1)
		c.others = append(c.others, on(t, name, group, node, 0, 0), sparedPod(on(t, name+"-stays", "low", node, 1, 0)))
	}
	c.run(t)
}

// A port is in use that no evictions free: only a trial in the session knows, and the team goes to
// other nodes.
func TestAPlanForPodsThatStartTogetherThatOtherPluginsRefuseIsMadeForOtherNodes(t *testing.T) {
	withPort := func(pod *corev1.Pod) *corev1.Pod {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80, Protocol: corev1.ProtocolTCP}}
		return pod
	}
	objects := []runtime.Object{groupOf("low", 0), important("high", "team", 2), withPort(podOf("new0", "team", asks{number: 1})), withPort(podOf("new1", "team", asks{number: 1}))}
	for n := range 3 {
		node := fmt.Sprint("n", n+1)
		stays := sparedPod(on(t, "stays-"+node, "low", node, 1, 9900))
		if n == 0 {
			stays = withPort(stays)
		}
		objects = append(objects, nodeOf(t, devices(node, 2, 10000)), on(t, "goes-"+node, "low", node, 0, 9900), stays)
	}
	l := newLab(t, objects...)
	l.with("predicates")
	for range 6 {
		l.tick()
	}
	evicted := l.evictions()
	if slices.Sort(evicted); !slices.Equal(evicted, []string{"goes-n2", "goes-n3"}) || !l.isBound("new0") || !l.isBound("new1") {
		t.Errorf("evicted %v; told %q and %q", evicted, l.status.message("new0"), l.status.message("new1"))
	}
}

// In the other order, the small pod would take the empty device, in this session or a later one.
func TestPodsKeepTheirPlacesInTheOrderInWhichTheyFit(t *testing.T) {
	for restartAt := range 4 {
		small := podOf("new0", "team", asks{number: 1, memory: 4000})
		small.Annotations[wire.UserPolicy] = "spread"
		l := newLab(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("low", 0), important("high", "team", 2), small, podOf("new1", "team", asks{number: 1}),
			sparedPod(on(t, "stays", "low", "n1", 0, 5000)), withGrace(on(t, "goes", "low", "n1", 1, 0), 4))
		for second := range 10 {
			if second > 0 && second == restartAt {
				l.restart()
			}
			l.tick()
		}
		if evicted := l.evictions(); !slices.Equal(evicted, []string{"goes"}) || !l.isBound("new0") || !l.isBound("new1") {
			t.Errorf("restarted in second %d (0 for never): evicted %v; told %q and %q", restartAt, evicted, l.status.message("new0"), l.status.message("new1"))
		}
	}
}
