// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// What the devices say to a pod for which Volcano looked at no device. It is the predicate's
// answer, and nothing is remembered by it.

const (
	// maxNodesAsked is how many nodes a session asks for such pods before it asks for no other
	// shape.
	maxNodesAsked = 5000
	// answerMaxAge is after how many seconds the nodes are asked again for pods of one shape.
	answerMaxAge = 3
	// answersShown is how many different answers of nodes are shown, those of most nodes first.
	answersShown = 5
)

// EvenEmpty ends what a node says whose devices would refuse the pod if no other pod were there.
const EvenEmpty = ", and it would not fit the empty node"

// haveRoom is what nodes say that have room for a pod which something else keeps waiting.
const haveRoom = "node(s) have room now"

// deviceAnswers remembers what the devices said, by the shape of what is asked for. The session
// goroutine owns it.
type deviceAnswers struct {
	said map[string]*deviceAnswer
	now  int64
	left int
}

// deviceAnswer is what the devices said, and when.
type deviceAnswer struct {
	text  string
	at    int64
	asked bool
}

// beginSession begins a session at a time in seconds.
func (l *deviceAnswers) beginSession(now int64) {
	if l.said == nil {
		l.said = map[string]*deviceAnswer{}
	}
	l.now, l.left = now, maxNodesAsked
}

// endSession forgets what nobody has asked for in this session.
func (l *deviceAnswers) endSession() {
	maps.DeleteFunc(l.said, func(_ string, known *deviceAnswer) bool {
		unasked := !known.asked
		known.asked = false
		return unasked
	})
}

// answerFor returns what pods of a shape were told in the last seconds, or asks so many nodes; ""
// if that is not known and the session has asked enough.
func (l *deviceAnswers) answerFor(shape string, nodes int, ask func() string) string {
	known := l.said[shape]
	if (known == nil || l.now-known.at >= answerMaxAge || l.now < known.at) && l.left > 0 {
		l.left -= nodes
		known = &deviceAnswer{text: ask(), at: l.now}
		l.said[shape] = known
	}
	if known == nil {
		return ""
	}
	known.asked = true
	return known.text
}

// summarizeDevices counts what the nodes and their devices say to a task, "" if that is not known.
func (e *explanation) summarizeDevices(t *api.TaskInfo, a *Ask) string {
	if a.IsUncertain {
		return ""
	}
	return e.memory.answers.answerFor(a.Shape, len(e.Devices), func() string { return e.askDevices(t) })
}

// askDevices asks the predicate about every node. What the task's queue allows is left out: the
// answer serves pods of all queues.
func (e *explanation) askDevices(t *api.TaskInfo) string {
	if len(e.Devices) == 0 {
		return ""
	}
	counts := map[string]int{}
	for name, n := range e.Devices {
		info := e.Nodes[name]
		if info == nil {
			continue
		}
		if closed := nodes.KeptOff(t.Pod, info.Node); closed != "" {
			counts[closed]++
		} else if refusal := e.Scheduler.Answer(t, n, info); refusal != "" {
			counts[refusal]++
		} else {
			counts[haveRoom]++
		}
	}
	texts := slices.SortedFunc(maps.Keys(counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(counts[y], counts[x]), cmp.Compare(x, y))
	})
	more := 0
	for i, text := range texts {
		if i >= answersShown {
			more += counts[text]
			continue
		}
		texts[i] = fmt.Sprintf("%d %s", counts[text], text)
	}
	said := "Devices: " + strings.Join(texts[:min(len(texts), answersShown)], ", ")
	if more > 0 {
		said += fmt.Sprintf(", %d other node(s)", more)
	}
	return said
}

// adviceFor is what a person can do about the reason for which nodes refuse most devices, "" if
// devices are not what is short.
func (e *explanation) adviceFor(a *Ask, said string) string {
	if strings.Contains(said, sharing.KeptApart.Text()) {
		example := e.memory.clashes.answerFor(a.Shape, len(e.Devices), func() string { return e.exampleOfClash(a.Request) })
		return e.joinSentences(e.adviceForAll(said), example)
	}
	return e.adviceForAll(said)
}

// adviceForAll is what helps all pods to which nodes say the same.
func (e *explanation) adviceForAll(said string) string {
	advice, known := e.advice[said]
	if !known {
		if main := sharing.MainReason(said); main != sharing.Fits && !strings.Contains(said, haveRoom) {
			advice = "What helps: " + e.findRemedy(main, said)
		}
		e.advice[said] = advice
	}
	return advice
}

// findRemedy is what a person can do about the main reason of what nodes said.
func (e *explanation) findRemedy(main sharing.Reason, said string) string {
	remedy := main.Advice()
	if main.Curable() && strings.Count(said, EvenEmpty) == strings.Count(said, " wanted: ") {
		remedy = "ask for less: no pod that ends makes room for it"
	}
	if main == sharing.NoPartitionFits {
		remedy += "; partitions have " + strings.Join(e.partitionSizes(), ", ")
	}
	return remedy
}

// exampleOfClash names one of the pods that are kept apart from the one that waits, and by what:
// the first one by the names of nodes.
func (e *explanation) exampleOfClash(wanted *sharing.PodRequest) string {
	for _, name := range slices.Sorted(maps.Keys(e.Devices)) {
		n, info := e.Devices[name], e.Nodes[name]
		if n.Ledger == nil || info == nil {
			continue
		}
		for i := range n.Ledger.Views() {
			v := &n.Ledger.Views()[i]
			c, found := v.FindClash(wanted)
			if !found || c.Reason != sharing.KeptApart || !v.Offered(wanted) {
				continue
			}
			for _, t := range info.Tasks {
				if t.Pod != nil && sharing.Owner(t.Pod.UID) == c.Owner {
					return describeClash(&c, t.Namespace+"/"+t.Name, name)
				}
			}
		}
	}
	return ""
}

// describeClash says who keeps whom away, and by what.
func describeClash(c *sharing.Clash, pod, node string) string {
	rule := c.Rule
	if rule == "" {
		rule = wire.UserNeighbours + ": " + c.Accepts.String()
	}
	if c.Theirs {
		return fmt.Sprintf("Kept apart: pod %s on node %s has %s", pod, node, rule)
	}
	return fmt.Sprintf("Kept apart: pod %s on node %s, by this pod's %s", pod, node, rule)
}

// partitionSizes lists how much memory the partitions of the cluster's devices have, which is a
// little less than people call them by.
func (e *explanation) partitionSizes() []string {
	var sizes []sharing.Bytes
	for _, n := range e.Devices {
		if n.Inventory == nil {
			continue
		}
		for i := range n.Inventory.Devices {
			d := &n.Inventory.Devices[i]
			if d.Mode != sharing.MIG || d.MIG == nil {
				continue
			}
			for k := range d.MIG.Profiles {
				if size := d.MIG.Profiles[k].Memory; !slices.Contains(sizes, size) {
					sizes = append(sizes, size)
				}
			}
		}
	}
	slices.Sort(sizes)
	texts := make([]string, 0, len(sizes))
	for _, size := range sizes {
		texts = append(texts, size.String())
	}
	return texts
}
