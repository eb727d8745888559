// SPDX-License-Identifier: Apache-2.0

// Package nodeorder is Volcano's plugin of that name, with the same scores for less work.
//
// Three of the scores are asked for all nodes at once: affinity between pods, tolerated taints, and
// topology spread. For each pod Volcano v1.14.1 makes a new description of each node first. It
// checks the names of all resources for it, which took a quarter of the scheduler's processor time
// on 1,000 nodes. Here a node is described once for as long as its object stays the same.
package nodeorder

import (
	"fmt"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"
	k8sframework "k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins/nodeorder"
	"volcano.sh/volcano/pkg/scheduler/plugins/util/nodescore"
)

// Register has sessions use this plugin under the name of Volcano's. The last registration of a
// name wins, so it must run after Volcano's plugins were imported.
func Register() {
	all := &nodeInfoCache{of: map[string]*k8sframework.NodeInfo{}}
	framework.RegisterPluginBuilder(nodeorder.PluginName, func(a framework.Arguments) framework.Plugin { return newPlugin(a, all) })
}

// newPlugin makes the plugin of one session. The arguments are those of Volcano's.
func newPlugin(arguments framework.Arguments, known *nodeInfoCache) framework.Plugin {
	theirs, ok := nodeorder.New(arguments).(*nodeorder.NodeOrderPlugin)
	if !ok { // another version of Volcano: its plugin as it is
		return nodeorder.New(arguments)
	}
	return &plugin{NodeOrderPlugin: theirs, known: known, weighted: weightedScores(arguments)}
}

type plugin struct {
	*nodeorder.NodeOrderPlugin
	known    *nodeInfoCache
	weighted []weightedScore
}

// weightedScore is a score that is asked for all nodes at once.
type weightedScore struct {
	name   string
	weight int
}

// weightedScores are the scores in Volcano's order, with its weights where the arguments name none.
func weightedScores(arguments framework.Arguments) []weightedScore {
	affinity, taints, spread := 2, 3, 2
	arguments.GetInt(&affinity, nodeorder.PodAffinityWeight)
	arguments.GetInt(&taints, nodeorder.TaintTolerationWeight)
	arguments.GetInt(&spread, nodeorder.PodTopologySpreadWeight)
	return []weightedScore{{interpodaffinity.Name, affinity}, {tainttoleration.Name, taints}, {podtopologyspread.Name, spread}}
}

func (p *plugin) OnSessionOpen(ssn *framework.Session) {
	p.NodeOrderPlugin.OnSessionOpen(ssn)
	p.known.dropIfMoreThan(len(ssn.Nodes))
	ssn.AddBatchNodeOrderFn(p.Name(), p.scoreNodes)
}

func (p *plugin) scoreNodes(task *api.TaskInfo, nodes []*api.NodeInfo) (map[string]float64, error) {
	state, described := k8sframework.NewCycleState(), p.known.describeNodes(nodes)
	sum := make(map[string]float64, len(nodes))
	for _, n := range nodes {
		sum[n.Node.Name] = 0
	}
	for _, w := range p.weighted {
		score := p.ScorePlugins[w.name]
		if score == nil {
			continue
		}
		part, err := nodescore.CalculatePluginScore(w.name, score, score.ScoreExtensions(), state, task.Pod, described, w.weight)
		if err != nil {
			return nil, fmt.Errorf("score nodes for pod %s/%s: %w", task.Namespace, task.Name, err)
		}
		for name, points := range part {
			sum[name] += points
		}
	}
	return sum, nil
}

// nodeInfoCache are those of nodes without their pods, as Volcano makes them. Informers replace a
// node's object when it changes, and a description holds the object, so that its address is not
// used again. Safe for concurrent use.
type nodeInfoCache struct {
	mu sync.Mutex
	of map[string]*k8sframework.NodeInfo
}

func (d *nodeInfoCache) describeNodes(nodes []*api.NodeInfo) []fwk.NodeInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]fwk.NodeInfo, 0, len(nodes))
	for _, n := range nodes {
		info := d.of[n.Name]
		if info == nil || info.Node() != n.Node {
			info = &k8sframework.NodeInfo{}
			info.SetNode(n.Node)
			d.of[n.Name] = info
		}
		out = append(out, info)
	}
	return out
}

// dropIfMoreThan drops all descriptions if there are more than nodes: some nodes are gone.
func (d *nodeInfoCache) dropIfMoreThan(nodes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.of) > nodes {
		d.of = map[string]*k8sframework.NodeInfo{}
	}
}
