// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/sharing/factory"
	"deviceshare/view"
)

func TestSumsAreThoseOfTheDevices(t *testing.T) {
	nodes := randomNodes(rand.New(rand.NewPCG(5, 6)), 300)
	o := view.Read(stateOf(t), factory.New()).Overview(nodes)
	type sums struct{ nodes, devices, shares, trouble int }
	want, all := map[string]sums{}, sums{}
	cards, _ := view.Cards(nodes, view.Filter{}, 0, len(nodes))
	var memory, promised int64
	for i := range nodes {
		one := sums{nodes: 1}
		for _, d := range nodes[i].Devices {
			one.devices, one.shares = one.devices+1, one.shares+len(d.Sharers)
			memory, promised = memory+d.Memory, promised+d.MemoryPromised
			if d.Health != "ok" || nodes[i].Unusable != "" {
				one.trouble++
			}
		}
		for _, into := range []*sums{&all, ptr(want[cards[i].Group])} {
			into.nodes, into.devices, into.shares, into.trouble = into.nodes+one.nodes, into.devices+one.devices, into.shares+one.shares, into.trouble+one.trouble
			if into != &all {
				want[cards[i].Group] = *into
			}
		}
	}
	if got := (sums{o.Total.Nodes, o.Total.Devices, o.Total.Shares, o.Total.Trouble}); got != all || o.Nodes != len(nodes) {
		t.Errorf("in all %+v of %d nodes, want %+v", got, o.Nodes, all)
	}
	if got := int64(o.Total.MemoryPart); got != promised*1000/memory {
		t.Errorf("%d thousandths of the memory are promised, want %d", got, promised*1000/memory)
	}
	got := map[string]sums{}
	for _, g := range o.Groups {
		got[g.Name] = sums{g.Nodes, g.Devices, g.Shares, g.Trouble}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("groups %v, want %v", got, want)
	}
	if !slices.IsSortedFunc(o.Groups, func(a, b view.Sum) int { return b.Nodes - a.Nodes }) {
		t.Error("the largest group is not the first")
	}
}

func ptr[T any](v T) *T { return &v }

func TestAPageOfWaitingPodsSaysWhatWhySaysTheLongestFirst(t *testing.T) {
	s := stateOf(t, gangOf(1))
	var want []string
	for i := range 23 {
		p := podOf(fmt.Sprintf("pod-%02d", i), 1+int64(i%3))
		p.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 2, 3, 59-i, 0, 0, time.UTC))
		s.Add(p)
		want = append([]string{"ns/" + p.Name}, want...)
	}
	c := view.Read(s, factory.New())
	var got []string
	for offset := 0; offset < 30; offset += 10 {
		list, total := c.Waiting(offset, 10)
		if total != len(want) || total != c.Status().Waiting {
			t.Errorf("%d wait, the status says %d, want %d", total, c.Status().Waiting, len(want))
		}
		for _, w := range list {
			got = append(got, w.Pod)
			alone, _ := c.Why("ns", w.Pod[len("ns/"):])
			if made, err := time.Parse(time.RFC3339, w.Since); err != nil || made.Minute() != 59-int(w.Pod[len(w.Pod)-1]-'0')-10*int(w.Pod[len(w.Pod)-2]-'0') {
				t.Errorf("%s waits since %s: %v", w.Pod, w.Since, err)
			}
			if !reflect.DeepEqual(w.Why, alone) {
				t.Errorf("%s: %+v, `why` says %+v", w.Pod, w.Why, alone)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if list, _ := c.Waiting(-1, 10); len(list) > 0 {
		t.Errorf("before the first there are %v", list)
	}
}
