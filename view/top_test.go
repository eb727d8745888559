// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"strings"
	"testing"

	"deviceshare/view"
	"deviceshare/view/usage"
)

const gib = 1 << 30

func sharedDevice() []view.NodeDevices {
	return []view.NodeDevices{{Node: "node-1", Devices: []view.Device{{
		ID: "GPU-1", Model: "A100", Mode: "hami-core", Memory: 40 * gib, MemoryPromised: 30 * gib,
		Sharers: []view.Sharer{
			{Pod: "ns/a", Container: "main", Memory: 10 * gib, Cores: 30},
			{Pod: "ns/b", Container: "main", Memory: 10 * gib}, {Pod: "ns/b", Container: "main", Memory: 10 * gib},
		},
	}}}}
}

func by(pod string) usage.Holder {
	return usage.Holder{Namespace: "ns", Pod: pod, Container: "main", Device: "GPU-1"}
}

func TestWhatIsUsedIsShownBesideWhatIsPromised(t *testing.T) {
	before := &usage.Page{Uses: map[usage.Holder]usage.Use{by("a"): {Seconds: 10, Measured: true}}}
	now := &usage.Page{
		Uses: map[usage.Holder]usage.Use{
			by("a"): {Memory: 6 * gib, Limit: 10 * gib, Seconds: 10.5, Measured: true},
			by("b"): {Memory: 2 * gib}, by("gone"): {Memory: gib, Limit: 4 * gib, Seconds: 3, Measured: true},
		},
		Strangers: map[string]int64{"GPU-1": 4 * gib},
	}
	list := view.Top(sharedDevice(), map[string]view.Reading{"node-1": {Before: before, Now: now, Seconds: 2}})
	want := `node-1
   0 [#######===========......] 9 GiB used, 30 GiB allocated of 40 GiB  hami-core  A100  4 GiB in processes that were given nothing
     CONTAINER      MEMORY           USED    ALLOCATED   LIMIT    COMPUTE   ALLOCATED
     ns/a:main      [#######.....]   6 GiB   10 GiB      10 GiB   25%       30%
     ns/b:main      [#...........]   2 GiB   20 GiB      -        -         -
     ns/gone:main   [###.........]   1 GiB   0           4 GiB    -         -
`
	if got := view.TopText(list, view.Paint{}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestWhatCannotBeReadIsSaidAndTheRestIsShown(t *testing.T) {
	nodes := append(sharedDevice(), sharedDevice()[0])
	nodes[1].Node = "node-2"
	text := view.TopText(view.Top(nodes, map[string]view.Reading{"node-1": {Unread: "the pod is pending"}}), view.Paint{})
	for _, want := range []string{
		"node-1 does not say what is used: the pod is pending\n", "node-2 does not say what is used: no device plugin runs on it\n",
		"? used, 30 GiB allocated of 40 GiB", "ns/a:main   ?        ?      10 GiB      ?       -         30%",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
}

func TestComputeIsNotToldOfAContainerThatHasBegunAnew(t *testing.T) {
	page := func(seconds float64) *usage.Page {
		return &usage.Page{Uses: map[usage.Holder]usage.Use{by("a"): {Seconds: seconds, Measured: true}}}
	}
	for name, c := range map[string]struct {
		before, now *usage.Page
		want        bool
	}{
		"it went on":    {page(1), page(2), true},
		"it is idle":    {page(1), page(1), true},
		"it began anew": {page(5), page(1), false},
		"one reading":   {nil, page(1), false},
		"it is new":     {&usage.Page{}, page(1), false},
	} {
		t.Run(name, func(t *testing.T) {
			list := view.Top(sharedDevice(), map[string]view.Reading{"node-1": {Before: c.before, Now: c.now, Seconds: 1}})
			if got := list[0].Devices[0].Containers[0].ComputeUsed; (got != nil) != c.want {
				t.Errorf("compute is %v, want it known: %v", got, c.want)
			}
		})
	}
}
