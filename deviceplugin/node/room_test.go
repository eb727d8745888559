// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// twoCards is a node with two devices of 16 GiB in mode hami-core, for ten shares each.
func twoCards(t *testing.T) node.State {
	t.Helper()
	s := node.New(node.Config{Node: "n1"})
	s = reduce(t, s, node.Configured{Settings: node.Settings{Offers: modes{byDefault: sharing.HAMiCore}}})
	return reduce(t, s, node.Scanned{Devices: []node.Facts{card("GPU-0", 0, "T4", "1"), card("GPU-1", 1, "T4", "2")}})
}

// taken adds up what a pod takes of a device, moment by moment: while each of its init containers
// runs, with the sidecars that have started before, and then with all that stay.
func taken(p *sharing.Placement, id sharing.DeviceID) (memory sharing.Bytes, cores sharing.Percent, shares int) {
	for moment := -1; moment < len(p.Containers); moment++ {
		if moment >= 0 && p.Containers[moment].Kind != sharing.Init {
			continue
		}
		var m sharing.Bytes
		var c sharing.Percent
		n := 0
		for i := range p.Containers {
			kind := p.Containers[i].Kind
			runs := kind != sharing.Init
			if moment >= 0 {
				runs = i == moment || kind == sharing.Sidecar && i < moment
			}
			for _, s := range p.Containers[i].Shares {
				if runs && s.Device == id {
					m, c, n = m+s.Memory, c+s.Cores, n+1
				}
			}
		}
		memory, cores, shares = max(memory, m), max(cores, c), max(shares, n)
	}
	return memory, cores, shares
}

// alone reports whether a share tolerates no other beside it.
func alone(s sharing.Share) bool { return s.Whole || s.Cores >= 100 }

// clash reports whether shares of two containers on a device cannot be together.
func clash(a, b *sharing.ContainerShares, id sharing.DeviceID) bool {
	for _, s := range a.Shares {
		for _, t := range b.Shares {
			if s.Device == id && t.Device == id && (alone(s) || alone(t)) {
				return true
			}
		}
	}
	return false
}

// together reports whether two containers of a pod ever run at the same time.
func together(p *sharing.Placement, i, j int) bool {
	a, b := p.Containers[min(i, j)].Kind, p.Containers[max(i, j)].Kind
	switch {
	case a == sharing.Init:
		return false
	case b == sharing.Init:
		return a == sharing.Sidecar
	}
	return true
}

// fits is the judgement of somebody who adds up everything.
func fits(p *sharing.Placement, running []node.Running) bool {
	for _, id := range []sharing.DeviceID{"GPU-0", "GPU-1"} {
		if !p.Uses(id) {
			continue
		}
		memory, cores, shares := taken(p, id)
		for i := range p.Containers {
			for j := range p.Containers[:i] {
				if together(p, i, j) && clash(&p.Containers[i], &p.Containers[j], id) {
					return false
				}
			}
		}
		for r := range running {
			q := &running[r].Placement
			m, c, n := taken(q, id)
			memory, cores, shares = memory+m, cores+c, shares+n
			for i := range p.Containers {
				for j := range q.Containers {
					if clash(&p.Containers[i], &q.Containers[j], id) {
						return false
					}
				}
			}
		}
		if memory > 16*sharing.GiB || cores > 100 || shares > 10 {
			return false
		}
	}
	return true
}

// anyPlacement is what a scheduler, a mistaken one or a forger may write.
func anyPlacement(random *rand.Rand) sharing.Placement {
	var p sharing.Placement
	for c := range 1 + random.IntN(3) {
		kind := []sharing.ContainerKind{sharing.App, sharing.Init, sharing.Sidecar}[random.IntN(3)]
		one := sharing.ContainerShares{Container: fmt.Sprint("c", c), Kind: kind}
		for _, d := range random.Perm(2)[:1+random.IntN(2)] {
			s := sharing.Share{Device: sharing.DeviceID(fmt.Sprint("GPU-", d)), Mode: sharing.HAMiCore}
			s.Memory = sharing.MiBs(int64(1 + random.IntN(1<<(4+random.IntN(11)))))
			s.Cores = sharing.Percent([]int{0, 0, 0, 10, 30, 100}[random.IntN(6)])
			if random.IntN(12) == 0 {
				s.Whole, s.Memory = true, 16*sharing.GiB
			}
			one.Shares = append(one.Shares, s)
		}
		p.Containers = append(p.Containers, one)
	}
	slices.SortStableFunc(p.Containers, func(a, b sharing.ContainerShares) int { // as in a spec
		return cmp.Compare(min(b.Kind, 1), min(a.Kind, 1))
	})
	return p
}

// Pods come with placements of any kind, right or wrong, and end, in any order. One starts exactly
// if adding up everything says that there is room.
func TestWhateverIsPlacedNothingIsGivenTwice(t *testing.T) {
	started, taken, wrong := 0, 0, 0
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 7))
		state := twoCards(t)
		var running []node.Running
		for n := range 120 {
			if len(running) > 0 && random.IntN(3) == 0 {
				i := random.IntN(len(running))
				running = slices.Delete(running, i, i+1)
				continue
			}
			p := anyPlacement(random)
			owner := sharing.Owner(fmt.Sprint("pod-", n))
			at := p.Containers[random.IntN(len(p.Containers))]
			_, no := node.Admit(state, node.Ask{Owner: owner, Container: at.Container, Slots: len(at.Shares), Placement: p}, false, running)
			switch byItself, here := fits(&p, nil), fits(&p, running); {
			case !byItself:
				wrong++
				if no == nil || no.Reason != node.PlacementWrong || no.IsFinal() {
					t.Fatalf("seed %d: %+v by itself is too much, and it is told %v", seed, p, no)
				}
			case !here:
				taken++
				if no == nil || no.Reason != node.DeviceTaken || !no.IsFinal() {
					t.Fatalf("seed %d: %+v has no room beside %+v, and it is told %v", seed, p, running, no)
				}
			case no != nil:
				t.Fatalf("seed %d: %+v has room beside %+v, and it is told %v", seed, p, running, no.Detail)
			default:
				started++
				running = append(running, node.Running{Owner: owner, Pod: "ns/" + string(owner), Placement: p})
			}
		}
	}
	if min(started, taken, wrong) < 200 {
		t.Errorf("%d started, %d found no room, %d were wrong: too few of a kind to mean anything", started, taken, wrong)
	}
}

func TestAPodThatHasBegunIsNotAskedForRoomAgain(t *testing.T) {
	p := of(sharing.Share{Device: "GPU-0", Mode: sharing.HAMiCore, Memory: 12 * sharing.GiB})
	other := node.Running{Owner: "b", Pod: "ns/b", Placement: p}
	ask := node.Ask{Owner: "a", Container: "main", Slots: 1, Placement: p}
	if _, no := node.Admit(twoCards(t), ask, true, []node.Running{other}); no != nil {
		t.Errorf("it is told %s", no.Detail)
	}
	if _, no := node.Admit(twoCards(t), ask, false, []node.Running{{Owner: "a", Pod: "ns/a", Placement: p}}); no != nil {
		t.Errorf("it stands in its own way: %s", no.Detail)
	}
}

func TestWhatAPodHolds(t *testing.T) {
	share := func(id sharing.DeviceID, memory sharing.Bytes) sharing.Share {
		return sharing.Share{Device: id, Mode: sharing.HAMiCore, Memory: memory}
	}
	ofUser := func(s sharing.Share) sharing.Share {
		s.User = sharing.User{ID: 1000, Known: true}
		return s
	}
	cut := sharing.Share{Device: "GPU-0", Mode: sharing.MIG, Partition: sharing.Partition{Profile: "1g.2gb", Start: 1, Size: 1, Geometry: "group1", Position: 1}}
	recorded := cut
	recorded.Partition.Geometry, recorded.Partition.Position = "", 0
	two := sharing.Placement{Containers: []sharing.ContainerShares{
		{Container: "first", Kind: sharing.Init, Shares: []sharing.Share{share("GPU-0", 1)}},
		{Container: "main", Shares: []sharing.Share{share("GPU-1", 2), share("GPU-0", 3)}},
	}}
	for says, c := range map[string]struct {
		decided  sharing.Placement
		prepared []sharing.ContainerShares
		want     sharing.Placement
		edited   string
	}{
		"nothing was prepared": {decided: two, want: two},
		"what was prepared is what was decided, in another order": {decided: two, want: two,
			prepared: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{share("GPU-0", 3), share("GPU-1", 2)}}}},
		"a share of a user, whom the spec says": {decided: of(ofUser(share("GPU-0", 1))), want: of(ofUser(share("GPU-0", 1))),
			prepared: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{share("GPU-0", 1)}}}},
		"a partition by the name it has in a configuration": {decided: of(cut), want: of(cut),
			prepared: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{recorded}}}},
		"it was less": {decided: of(share("GPU-0", 2)), want: of(share("GPU-0", 1)), edited: "main",
			prepared: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{share("GPU-0", 1)}}}},
		"it was one device": {decided: of(share("GPU-0", 1), share("GPU-1", 1)), want: of(share("GPU-0", 1)), edited: "main",
			prepared: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{share("GPU-0", 1)}}}},
		"it was another device twice as often": {decided: of(share("GPU-0", 1), share("GPU-0", 1)), want: of(share("GPU-0", 1), share("GPU-1", 1)), edited: "main",
			prepared: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{share("GPU-0", 1), share("GPU-1", 1)}}}},
		"nothing can be read any more": {want: of(share("GPU-0", 1)), edited: "main",
			prepared: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{share("GPU-0", 1)}}}},
		"containers that the spec does not have": {decided: sharing.Placement{Containers: []sharing.ContainerShares{{Container: "no such"}}},
			want: sharing.Placement{Containers: []sharing.ContainerShares{{Container: "no such"}}}},
	} {
		got, edited := node.Held(c.decided, c.prepared, []string{"first", "plain", "main"})
		if fmt.Sprint(got) != fmt.Sprint(c.want) || edited != c.edited {
			t.Errorf("%s: holds %v, edited %q; want %v, %q", says, got, edited, c.want, c.edited)
		}
	}
}

// A pod with one share starts on a node of eight devices on each of which nine pods run.
func BenchmarkAdmit(b *testing.B) {
	s := node.Reduce(node.New(node.Config{Node: "n1"}), node.Configured{Settings: node.Settings{Offers: modes{byDefault: sharing.HAMiCore}}})
	var cards []node.Facts
	for i := range 8 {
		cards = append(cards, card(fmt.Sprint("GPU-", i), i, "T4", fmt.Sprint(i)))
	}
	s = node.Reduce(s, node.Scanned{Devices: cards})
	share := func(device int) sharing.Placement {
		return of(sharing.Share{Device: sharing.DeviceID(fmt.Sprint("GPU-", device)), Mode: sharing.HAMiCore, Memory: sharing.MiB})
	}
	var running []node.Running
	for i := range 72 {
		running = append(running, node.Running{Owner: sharing.Owner(fmt.Sprint(i)), Placement: share(i % 8)})
	}
	ask := node.Ask{Owner: "new", Container: "main", Slots: 1, Placement: share(7)}
	for b.Loop() {
		if _, no := node.Admit(s, ask, false, running); no != nil {
			b.Fatal(no.Detail)
		}
	}
}
