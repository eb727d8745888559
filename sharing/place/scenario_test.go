// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest/story"
)

var rewrite = flag.Bool("rewrite", false, "write what happens into the scenario files")

// TestScenarios runs the stories in testdata/*.txt; testdata/README.md describes the
// commands.
func TestScenarios(t *testing.T) {
	story.Run(t, 21, *rewrite, func(t *testing.T) story.World { return &world{t: t, ledgers: map[string]*sharing.Ledger{}} })
}

// world is the nodes of a story.
type world struct {
	t       *testing.T
	nodes   []string
	ledgers map[string]*sharing.Ledger
}

// Do carries out one command and checks that the ledgers still add up.
func (w *world) Do(lines []string) string {
	outcome := w.run(lines)
	for _, l := range w.ledgers {
		if err := l.Check(); err != nil {
			w.t.Errorf("after %q: %v", lines[0], err)
		}
	}
	return outcome
}

func (w *world) run(lines []string) string {
	words := strings.Fields(lines[0])
	if len(words) < 2 {
		w.t.Fatalf("%q: want a command and a name", lines[0])
	}
	name, options := words[1], words[2:]
	switch words[0] {
	case "node":
		return w.node(name, lines[1:])
	case "place":
		return w.place(name, options, lines[1:])
	case "release":
		for _, l := range w.ledgers {
			l.Release(sharing.Owner(name))
		}
		return "ok"
	case "block":
		w.ledgers[options[0]].Block(sharing.Owner(name))
		return "ok"
	case "ledger":
		return w.draw(name)
	}
	w.t.Fatalf("unknown command %q", lines[0])
	return ""
}

// node makes a node, or publishes it again: what pods hold stays.
func (w *world) node(name string, lines []string) string {
	inv := &sharing.Inventory{Node: name}
	for _, line := range lines {
		inv.Devices = append(inv.Devices, device(w.t, line))
	}
	l := sharing.NewLedger(inv, factory.New())
	if old, ok := w.ledgers[name]; ok {
		for _, o := range old.Owners() {
			p, _ := old.Placement(o)
			l.Record(o, p)
		}
	} else {
		w.nodes = append(w.nodes, name)
	}
	w.ledgers[name] = l
	return "ok"
}

// place puts a pod on the node that fits it and that the policy scores highest.
func (w *world) place(name string, options, lines []string) string {
	pod, order := parsePod(w.t, name, options, lines)
	var best string
	var chosen sharing.Placement
	var refused strings.Builder
	for _, node := range w.nodes {
		views := w.ledgers[node].Views()
		placement, refusals := place.Place(views, pod, factory.New(), order)
		if summary := place.Summarize(views); summary.Refuses(pod) && !refusals.Refused() {
			w.t.Errorf("%s: the summary of %s refuses what fits", name, node)
		}
		if refusals.Refused() {
			fmt.Fprintf(&refused, "refused by %s: %s%s\n", node, refusals.String(), hope(views, pod, order))
			continue
		}
		if best == "" || scoreOf(w.ledgers[node], pod, order) > scoreOf(w.ledgers[best], pod, order) {
			best, chosen = node, placement
		}
	}
	if best == "" {
		return refused.String()
	}
	if err := w.ledgers[best].Reserve(pod.Owner, chosen); err != nil {
		w.t.Errorf("%s was placed and cannot be reserved: %v", name, err)
	}
	return show(best, &chosen)
}

// hope says whether removing other pods could help.
func hope(views []sharing.View, pod *sharing.PodRequest, order policy.Policy) string {
	if possible(views, pod, factory.New(), order) {
		return "; fits when others leave"
	}
	return "; never fits here"
}

// possible reports whether the pod would fit if nobody held anything of the devices.
func possible(views []sharing.View, pod *sharing.PodRequest, backends sharing.Backends, p policy.Policy) bool {
	bare := make([]sharing.View, len(views))
	for i := range views {
		bare[i] = sharing.NewView(views[i].Device, nil, backends)
	}
	_, refusals := place.Place(bare, pod, backends, p)
	return !refusals.Refused()
}
