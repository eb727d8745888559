// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
)

// Question is what is decided from.
type Question struct {
	// Waiting are the pods that no node of the cluster has devices for.
	Waiting []Waiting
	Types   []NodeType
	Seen    []Seen
	// TypeLabel is the label whose value is the type of a node.
	TypeLabel string
	Settings  *nodes.Settings
	Backends  sharing.Backends
}

// Waiting is a pod with how long it has waited.
type Waiting struct {
	Pod
	// IsLong says that it has waited for long enough to have a node asked for.
	IsLong bool
}

// Answer is what is decided.
type Answer struct {
	// Wishes are the utility pods that there ought to be, Needed how many new nodes the pods need
	// in all, by type.
	Wishes []Wish
	Needed map[string]int
	// Served is the type of new node that would serve a pod, for pods that one would.
	Served map[types.UID]string
}

// Decide says which utility pods there ought to be.
//
// Pods need n new nodes of a type, and an autoscaler that adds up amounts brings m of them by
// itself: n-m are asked for. One more is for each empty node of no use, whose devices are broken or
// cordoned: the first utility pods seem to fit there. When a node has come, all is counted anew, so
// that the next answer mends a wrong m. A pod at which autoscalers do not look counts in n alone.
func Decide(q *Question) Answer {
	a := Answer{Needed: map[string]int{}, Served: map[types.UID]string{}}
	var long, all []Pod
	for i := range q.Waiting {
		all = append(all, q.Waiting[i].Pod)
		if q.Waiting[i].IsLong {
			long = append(long, q.Waiting[i].Pod)
		}
	}
	for _, h := range packPods(all, q.Types, nil, q.Backends, q.Settings).hosts {
		for _, p := range h.pods {
			a.Served[p.Object.UID] = h.of.Name
		}
	}
	f := packPods(long, q.Types, q.countJoining(), q.Backends, q.Settings)
	wishes := map[string][]Wish{}
	for _, h := range f.hosts {
		if !h.joins {
			a.Needed[h.of.Name]++
			wishes[h.of.Name] = append(wishes[h.of.Name], wishFor(h, q))
		}
	}
	expected := expectAdditions(f, q.Seen)
	for i := range q.Types {
		name := q.Types[i].Name
		asked := wishes[name][min(len(expected.added[name]), len(wishes[name])):]
		if len(asked) == 0 {
			continue
		}
		a.Wishes = append(a.Wishes, asked...)
		for range expected.countEmpty(&asked[0]) {
			a.Wishes = append(a.Wishes, asked[0])
		}
	}
	slices.SortStableFunc(a.Wishes, compareWishes)
	return a
}

// countJoining is how many nodes of each type have joined and do not have their devices yet.
func (q *Question) countJoining() map[string]int {
	n := map[string]int{}
	for i := range q.Seen {
		if s := &q.Seen[i]; s.IsJoining && !s.TakesPods {
			n[s.Node.Labels[q.TypeLabel]]++
		}
	}
	return n
}
