// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"deviceshare/sharing/plan"
)

// scenario is a small cluster of nodes with devices of 24 GiB, and who has to leave.
type scenario struct {
	// nodes are texts: devices behind bars, and on each its pods with their GiB. A device may begin
	// with "mig". A pod without amount has the whole device, a pod in parentheses has none.
	nodes []string
	// pods says what is special about pods. The others have priority 1, 1 CPU, 30 s of grace, and
	// have run for ten minutes.
	pods map[string]special
	// gangs say how many of their members have to run.
	gangs map[string]int
	// budgets say how many of their pods may still leave.
	budgets map[string]int
	// gives say how many of their pods other queues give up.
	gives map[string]int
	// lacks is how many pods have to leave the queue, which is full.
	lacks int
	wish  wants
	// moves says that all pods move, and mostMoves how many may.
	moves     bool
	mostMoves int
	// leave are the pods that have to leave, with the node that the wish gets, or "no: " and the
	// reasons.
	leave string
}

type special struct {
	priority, cpu, age, grace int
	gang, budget              string
	queue                     string // one that gives pods up
	turn                      int
	isProtected               bool
}

// wants is what a pod of priority 100 asks for.
type wants struct {
	pods              int // alike, 0 for one
	devices, gib, cpu int
	exclude           int // a node
	numa              bool
}

// podScenarios are about which pods leave for devices and CPU.
func podScenarios() map[string]scenario {
	return map[string]scenario{
		"the least important pod leaves, wherever it is": {
			nodes: []string{"a", "b", "c"},
			pods:  map[string]special{"a": {priority: 50}, "c": {priority: 50}},
			wish:  wants{devices: 1}, leave: "n2: b",
		},
		"two unimportant pods leave rather than an important one": {
			nodes: []string{"a", "b:12 c:12"},
			pods:  map[string]special{"a": {priority: 50}},
			wish:  wants{devices: 1}, leave: "n2: b c",
		},
		"five unimportant pods leave rather than one of the next priority": {
			nodes: []string{"a", "b:4 c:4 d:4 e:4 f:4"},
			pods:  map[string]special{"a": {priority: 4}},
			wish:  wants{devices: 1}, leave: "n2: b c d e f",
		},
		"of equally important pods the fewest leave": {
			nodes: []string{"a:4 b:4 c:4 d:4 e:4 | f:8 g:16"},
			wish:  wants{devices: 1}, leave: "n1: f g",
		},
		"one pod with two devices leaves rather than two with one": {
			nodes: []string{"a | b | c | c"},
			wish:  wants{devices: 2}, leave: "n1: c",
		},
		"only those leave whose leaving is needed": {
			nodes: []string{"a:4 b:12 c:8"},
			wish:  wants{devices: 1, gib: 10}, leave: "n1: b",
		},
		"pods leave whose partitions lie where the larger one may begin": {
			nodes: []string{"mig a:6 b:6 c:6 d:6"},
			pods:  map[string]special{"a": {age: 540}, "b": {age: 60}, "c": {age: 60}},
			wish:  wants{devices: 1, gib: 12}, leave: "n1: a b",
		},
		"pods without devices leave for CPU": {
			nodes: []string{"a | b (c) (d)"},
			pods:  map[string]special{"a": {age: 60}, "c": {cpu: 3, age: 6000}},
			wish:  wants{devices: 0, cpu: 3}, leave: "n1: c",
		},
		"for devices and CPU, one pod that has both is better than two": {
			nodes: []string{"a | b (c)"},
			pods:  map[string]special{"a": {age: 60}, "b": {cpu: 4}, "c": {cpu: 3}},
			wish:  wants{devices: 1, cpu: 4}, leave: "n1: b",
		},
		"devices of one NUMA node are cleared, even if others cost less": {
			nodes: []string{"a | b | c | d"},
			pods:  map[string]special{"a": {age: 60}, "c": {age: 60}},
			wish:  wants{devices: 2, numa: true}, leave: "n1: a b",
		},
	}
}

// gangScenarios are about pods that need each other.
func gangScenarios() map[string]scenario {
	return map[string]scenario{
		"no gang is broken if a single pod would do": {
			nodes: []string{"a", "b", "c"},
			gangs: map[string]int{"g": 2},
			pods:  map[string]special{"a": {gang: "g"}, "b": {gang: "g"}, "c": {age: 6000}},
			wish:  wants{devices: 1}, leave: "n3: c",
		},
		"a spare member of a gang leaves like any pod": {
			nodes: []string{"a", "b", "c"},
			gangs: map[string]int{"g": 2},
			pods:  map[string]special{"a": {gang: "g"}, "b": {gang: "g", age: 60}, "c": {gang: "g"}},
			wish:  wants{devices: 1}, leave: "n2: b",
		},
		"a gang that cannot spare a member leaves as a whole, on all nodes": {
			nodes: []string{"a", "b"},
			gangs: map[string]int{"g": 2},
			pods:  map[string]special{"a": {gang: "g"}, "b": {gang: "g"}},
			wish:  wants{devices: 1}, leave: "n1: a b",
		},
		"one gang leaves and not parts of two": {
			nodes: []string{"a | b", "c | d"},
			gangs: map[string]int{"g": 2, "h": 2},
			pods:  map[string]special{"a": {gang: "g"}, "c": {gang: "g"}, "b": {gang: "h", age: 60}, "d": {gang: "h", age: 60}},
			wish:  wants{devices: 1}, leave: "n1: b d",
		},
		"a gang stays if one of its members is protected": {
			nodes: []string{"a", "b"},
			gangs: map[string]int{"g": 2},
			pods:  map[string]special{"a": {gang: "g"}, "b": {gang: "g", isProtected: true}},
			wish:  wants{devices: 1}, leave: "no: 1 important, 1 gang stays",
		},
	}
}

// limitScenarios are about who is spared, and when nobody has to leave.
func limitScenarios() map[string]scenario {
	return map[string]scenario{
		"a short grace period is better than a long one": {
			nodes: []string{"a", "b"},
			pods:  map[string]special{"a": {grace: 300, age: 60}},
			wish:  wants{devices: 1}, leave: "n2: b",
		},
		"grace periods of the same half minute are equal: the younger pod leaves": {
			nodes: []string{"a", "b"},
			pods:  map[string]special{"a": {grace: 1}, "b": {age: 60}},
			wish:  wants{devices: 1}, leave: "n2: b",
		},
		"after an hour, age does not matter": {
			nodes: []string{"a", "b"},
			pods:  map[string]special{"a": {age: 90000}, "b": {age: 4000}},
			wish:  wants{devices: 1}, leave: "n1: a",
		},
		"a budget is never broken": {
			nodes:   []string{"a:12 b:12", "c:8 d:8 e:8"},
			budgets: map[string]int{"web": 1},
			pods:    map[string]special{"a": {budget: "web"}, "b": {budget: "web"}},
			wish:    wants{devices: 1}, leave: "n2: c d e",
		},
		"budgets that are used up leave nobody": {
			nodes:   []string{"a", "b"},
			budgets: map[string]int{"web": 0},
			pods:    map[string]special{"a": {budget: "web"}, "b": {priority: 100}},
			wish:    wants{devices: 1}, leave: "no: 1 important, 1 budgeted (web)",
		},
		"pods of the same priority and protected ones stay": {
			nodes: []string{"a", "b"},
			pods:  map[string]special{"a": {priority: 100}, "b": {isProtected: true}},
			wish:  wants{devices: 1}, leave: "no: 2 important",
		},
		"nobody leaves for what no node has": {
			nodes: []string{"a | b", "c"},
			wish:  wants{devices: 3}, leave: "no: 2 too small",
		},
		"a node that refuses the pod is not cleared": {
			nodes: []string{"a", "b"},
			pods:  map[string]special{"b": {priority: 50}},
			wish:  wants{devices: 1, exclude: 1}, leave: "n2: b",
		},
	}
}

// giverScenarios are about pods of other queues.
func giverScenarios() map[string]scenario {
	return map[string]scenario{
		"a queue gives up no more pods than it may": {
			nodes: []string{"a:12 b:12", "c:8 d:8 e:8"},
			gives: map[string]int{"q": 1, "r": 3},
			pods: map[string]special{
				"a": {queue: "q"}, "b": {queue: "q"}, "c": {queue: "r"}, "d": {queue: "r"}, "e": {queue: "r"},
			},
			wish: wants{devices: 1}, leave: "n2: c d e",
		},
		"two queues give one each": {
			nodes: []string{"a:12 b:12"},
			gives: map[string]int{"q": 1, "r": 1},
			pods:  map[string]special{"a": {queue: "q"}, "b": {queue: "r"}},
			wish:  wants{devices: 1}, leave: "n1: a b",
		},
		"the queue whose turn it is gives, though its pod is older": {
			nodes: []string{"a", "b"},
			gives: map[string]int{"q": 1, "r": 1},
			pods:  map[string]special{"a": {queue: "q", turn: 1, age: 60}, "b": {queue: "r"}},
			wish:  wants{devices: 1}, leave: "n2: b",
		},
		"one pod of another queue rather than two of the one whose turn it is": {
			nodes: []string{"a", "b:12 c:12"},
			gives: map[string]int{"q": 1, "r": 2},
			pods:  map[string]special{"a": {queue: "q", turn: 1}, "b": {queue: "r"}, "c": {queue: "r"}},
			wish:  wants{devices: 1}, leave: "n1: a",
		},
		"queues that keep what they have leave nobody": {
			nodes: []string{"a", "b"},
			gives: map[string]int{"q": 0},
			pods:  map[string]special{"a": {queue: "q"}, "b": {queue: "q"}},
			wish:  wants{devices: 1}, leave: "no: 2 deserved",
		},
	}
}

// teamScenarios are about pods that start together.
func teamScenarios() map[string]scenario {
	return map[string]scenario{
		"one pod leaves for two rather than one for each": {
			nodes: []string{"a", "b:12 c:12 | d"},
			pods:  map[string]special{"a": {age: 3000}, "d": {isProtected: true}},
			wish:  wants{pods: 2, devices: 1, gib: 12}, leave: "n1 n1: a",
		},
		"room that is there is used first": {
			nodes: []string{"a", "b | "},
			pods:  map[string]special{"b": {priority: 50}},
			wish:  wants{pods: 2, devices: 1}, leave: "n1 n2: a",
		},
		"nobody leaves unless there is room for all": {
			nodes: []string{"a", "b"},
			pods:  map[string]special{"b": {isProtected: true}},
			wish:  wants{pods: 2, devices: 1}, leave: "no: room for 1 of 2",
		},
		"a gang that leaves makes room on all its nodes": {
			nodes: []string{"a", "b", "c", "d"},
			gangs: map[string]int{"g": 2},
			pods:  map[string]special{"a": {gang: "g"}, "d": {gang: "g"}, "b": {priority: 50}, "c": {priority: 50}},
			wish:  wants{pods: 2, devices: 1}, leave: "n1 n4: a d",
		},
		"only as many members leave as the gang can spare": {
			nodes: []string{"a", "b", "c", "d"},
			gangs: map[string]int{"g": 2},
			pods:  map[string]special{"a": {gang: "g", age: 60}, "b": {gang: "g", age: 60}, "c": {gang: "g", age: 60}},
			wish:  wants{pods: 2, devices: 1}, leave: "n1 n4: a d",
		},
		"a budget counts all that leave": {
			nodes:   []string{"a", "b", "c"},
			budgets: map[string]int{"web": 1},
			pods:    map[string]special{"a": {budget: "web", age: 60}, "b": {budget: "web", age: 60}},
			wish:    wants{pods: 2, devices: 1}, leave: "n1 n3: a c",
		},
		"several pods on one node": {
			nodes: []string{"a | b | c | d", "e | f"},
			pods:  map[string]special{"d": {priority: 50}, "a": {age: 60}},
			wish:  wants{pods: 3, devices: 1}, leave: "n1 n1 n1: a b c",
		},
	}
}

// queueScenarios are about queues that are full.
func queueScenarios() map[string]scenario {
	return map[string]scenario{
		"the least important pod of the queue leaves, though a device is free elsewhere": {
			nodes: []string{"a | ", "b"},
			pods:  map[string]special{"a": {priority: 50}},
			lacks: 1, wish: wants{devices: 1}, leave: "n1: b",
		},
		"who makes room leaves the queue, too": {
			nodes: []string{"a", "b"},
			pods:  map[string]special{"a": {priority: 50}},
			lacks: 1, wish: wants{devices: 1}, leave: "n2: b",
		},
		"for one large pod several small ones leave, wherever they are": {
			nodes: []string{"a:12", "b:12", "c | "},
			pods:  map[string]special{"c": {isProtected: true}},
			lacks: 2, wish: wants{devices: 1}, leave: "n3: a b",
		},
		"nobody leaves if not enough of the queue may": {
			nodes: []string{"a | ", "b"},
			pods:  map[string]special{"a": {isProtected: true}},
			lacks: 2, wish: wants{devices: 1}, leave: "no: the queue is full",
		},
	}
}

func TestWhoHasToLeaveAFullQueue(t *testing.T) {
	for name, s := range queueScenarios() {
		t.Run(name, func(t *testing.T) {
			w, wish := s.build(t)
			w.Lacks = []int64{int64(s.lacks)}
			p, no := plan.FindTogether(w, []*plan.Wish{wish})
			if got := describe(w, &p, no); got != s.leave {
				t.Errorf("%s; want %s", got, s.leave)
			}
		})
	}
}

func TestWhoHasToLeave(t *testing.T) {
	all := podScenarios()
	maps.Copy(all, gangScenarios())
	maps.Copy(all, limitScenarios())
	maps.Copy(all, giverScenarios())
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			w, wish := s.build(t)
			p, no := plan.Find(w, wish)
			if got := describe(w, &p, no); got != s.leave {
				t.Errorf("%s; want %s", got, s.leave)
			}
			if no == nil && !p.Proven || no != nil && !no.Proven {
				t.Error("not proven")
			}
		})
	}
}

func TestWhoHasToLeaveForPodsThatStartTogether(t *testing.T) {
	for name, s := range teamScenarios() {
		t.Run(name, func(t *testing.T) {
			w, wish := s.build(t)
			p, no := plan.FindTogether(w, slices.Repeat([]*plan.Wish{wish}, s.wish.pods))
			if got := describe(w, &p, no); got != s.leave {
				t.Errorf("%s; want %s", got, s.leave)
			}
		})
	}
}

// describe is an answer as a scenario says it.
func describe(w *plan.World, p *plan.Plan, no *plan.No) string {
	if no == nil {
		var names []string
		for _, v := range p.Evict {
			name := string(v.Owner)
			for _, m := range p.Moves {
				if m.Pod == v {
					name += " to " + w.Nodes[m.To.Node].Name
				}
			}
			names = append(names, name)
		}
		slices.Sort(names)
		var nodes []string
		for _, place := range p.Places {
			nodes = append(nodes, w.Nodes[place.Node].Name)
		}
		slices.Sort(nodes)
		return fmt.Sprintf("%s: %s", strings.Join(nodes, " "), strings.Join(names, " "))
	}
	if no.QueueIsFull {
		return "no: the queue is full"
	}
	if no.Of > 0 {
		return fmt.Sprintf("no: room for %d of %d", no.Fit, no.Of)
	}
	var parts []string
	for o, name := range map[plan.Obstacle]string{
		plan.Excluded: "excluded", plan.TooSmall: "too small", plan.Important: "important", plan.Budgeted: "budgeted",
		plan.Deserved: "deserved", plan.GangStays: "gang stays", plan.NotFound: "not found",
		plan.Nowhere: "nowhere",
	} {
		if n := no.Nodes[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d:%d %s", o, n, name))
		}
	}
	slices.Sort(parts)
	for i := range parts {
		_, parts[i], _ = strings.Cut(parts[i], ":")
	}
	text := "no: " + strings.Join(parts, ", ")
	if len(no.Budgets) > 0 {
		text += " (" + strings.Join(no.Budgets, " ") + ")"
	}
	return text
}
