// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// Status is the cluster at a glance.
type Status struct {
	Nodes  int     `json:"nodes"`
	Models []Model `json:"models"`
	// Waiting is how many pods that ask for devices have no node; Longest names some of them, the
	// oldest first.
	Waiting int       `json:"waiting"`
	Longest []Why     `json:"longest,omitempty"`
	Trouble []Trouble `json:"problems,omitempty"`
	// MoreTrouble is how many problems are not listed.
	MoreTrouble int `json:"moreProblems,omitempty"`
}

// Model sums up the devices of one model.
type Model struct {
	Model   string `json:"model"`
	Devices int    `json:"devices"`
	// Broken devices take no pods, and neither do Changing ones, nor those that are Cordoned though
	// they work.
	Broken   int `json:"broken"`
	Changing int `json:"changing"`
	Cordoned int `json:"cordoned"`
	Shares   int `json:"shares"`
	// Memory in bytes and compute in percent of a device: what there is and what is promised.
	Memory         int64 `json:"memory"`
	MemoryPromised int64 `json:"memoryPromised"`
	MemoryFree     int64 `json:"memoryFree"`
	Cores          int   `json:"cores"`
	CoresPromised  int   `json:"coresPromised"`
	CoresFree      int   `json:"coresFree"`
}

// Trouble is something wrong, with what to do about it.
type Trouble struct {
	On   string `json:"on"`
	What string `json:"what"`
	Do   string `json:"do"`
}

// ownRights is what a missing right of the user is about.
const ownRights = "your rights"

// mostWaiting and mostTrouble bound the lists of the status.
const mostWaiting, mostTrouble = 5, 20

// Status sums the cluster up.
func (c *Cluster) Status() Status {
	models := map[string]*Model{}
	s, rooms := Status{}, c.newCapacityCache()
	for _, n := range c.nodes {
		if n.Ledger == nil {
			continue
		}
		s.Nodes++
		views := n.Ledger.Views()
		for i := range views {
			addDevice(models, &views[i], n, rooms)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(models)) {
		s.Models = append(s.Models, *models[name])
	}
	c.fillWaiting(&s)
	s.Trouble = c.findTroubles()
	if more := len(s.Trouble) - mostTrouble; more > 0 {
		s.Trouble, s.MoreTrouble = s.Trouble[:mostTrouble], more
	}
	return s
}

// addDevice counts one device. What is free of a device that takes no pods is not free for anybody.
func addDevice(models map[string]*Model, v *sharing.View, n *nodes.Node, rooms *capacityCache) {
	d := v.Device
	m := models[d.Model]
	if m == nil {
		m = &Model{Model: d.Model}
		models[d.Model] = m
	}
	m.Devices++
	m.Shares += len(v.Held())
	m.Memory, m.Cores = m.Memory+int64(d.Memory), m.Cores+int(d.Cores)
	m.MemoryPromised, m.CoresPromised = m.MemoryPromised+int64(v.UsedMemory()), m.CoresPromised+int(v.UsedCores())
	switch {
	case d.Changing:
		m.Changing++
	case !d.Healthy:
		m.Broken++
	case d.Cordon != nil:
		m.Cordoned++
	case n.Unusable == nil && len(n.Ledger.Blocking()) == 0:
		free := rooms.freeOn(v)
		m.MemoryFree, m.CoresFree = m.MemoryFree+int64(free.memory), m.CoresFree+int(free.cores)
	}
}

// fillWaiting counts the pods that wait and says of the oldest why.
func (c *Cluster) fillWaiting(s *Status) {
	pods := c.waitingPods()
	s.Waiting = len(pods)
	for _, p := range pods[:min(len(pods), mostWaiting)] {
		s.Longest = append(s.Longest, c.explainPod(p))
	}
}

// waitingPods are the pods that ask for devices and have no node, the oldest first.
func (c *Cluster) waitingPods() []*corev1.Pod {
	pods := slices.Clone(c.state.Pods)
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return !c.isWaiting(p) })
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods
}

// findTroubles lists what is wrong: with the configuration, with nodes, with devices, with pods.
func (c *Cluster) findTroubles() []Trouble {
	var out []Trouble
	for _, m := range c.configMistakes {
		out = append(out, Trouble{"device configuration", m, "correct the ConfigMap, see its event DeviceConfigurationInvalid; the last valid one stays in force"})
	}
	for _, u := range c.state.Unread {
		out = append(out, Trouble{"capture", u, "take the capture again with the program of this version"})
	}
	for _, f := range c.state.Forbidden {
		out = append(out, Trouble{ownRights, "you may not " + f + ": nothing is said of it, or the default is assumed", "kubectl auth can-i " + f})
	}
	out = append(out, c.configsThatDiffer()...)
	for _, n := range c.nodes {
		out = append(out, nodeTroubles(n)...)
	}
	return out
}

// configsThatDiffer names the nodes whose device configuration is not that of most nodes.
func (c *Cluster) configsThatDiffer() []Trouble {
	byHash := map[string][]string{}
	for _, n := range c.nodes {
		if n.Object == nil || n.Object.Annotations[wire.NodeConfig] == "" {
			continue
		}
		if v, err := wire.DecodeConfig(n.Object.Annotations[wire.NodeConfig]); err == nil {
			byHash[v.Device] = append(byHash[v.Device], n.Name)
		}
	}
	if len(byHash) < 2 {
		return nil
	}
	most := slices.MaxFunc(slices.Sorted(maps.Keys(byHash)), func(a, b string) int { return cmp.Compare(len(byHash[a]), len(byHash[b])) })
	var out []Trouble
	for _, hash := range slices.Sorted(maps.Keys(byHash)) {
		if hash != most {
			out = append(out, Trouble{firstOf(byHash[hash]), fmt.Sprintf("has device configuration %s in force, most nodes have %s", hash, most),
				"look for an event DeviceConfigInvalid of the node, and at the log of its device plugin"})
		}
	}
	return out
}

func firstOf(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}

func nodeTroubles(n *nodes.Node) []Trouble {
	var out []Trouble
	if n.Inventory != nil && n.Unusable != nil {
		out = append(out, Trouble{n.Name, n.Unusable.Error(), "kubectl describe node " + n.Name + ", then look at the device plugin's pod on it"})
	}
	for p := range n.Problems() {
		on, do := n.Name, "kubectl describe node "+n.Name
		if p.Object.Kind == "Pod" {
			on, do = p.Object.Namespace+"/"+p.Object.Name, fmt.Sprintf("kubectl describe pod -n %s %s", p.Object.Namespace, p.Object.Name)
		}
		out = append(out, Trouble{on, p.Message, do})
	}
	if n.Inventory == nil {
		return out
	}
	for i := range n.Inventory.Devices {
		d := &n.Inventory.Devices[i]
		if !d.Healthy && !d.Changing {
			what := strings.TrimSuffix(fmt.Sprintf("device %d is broken: %s", d.Index, d.Reason), ": ")
			out = append(out, Trouble{n.Name, what, "see the event GPUUnhealthy of the node; its pods stay until they are deleted"})
		}
		if d.Licence == sharing.LicenceMissing {
			out = append(out, Trouble{n.Name, fmt.Sprintf("device %d is a vGPU without a licence", d.Index), "see the event GPULicenceMissing of the node, and look at nvidia-gridd on it"})
		}
	}
	return out
}
