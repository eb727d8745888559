// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// rounds is how many random stories are played, and how long each is.
const rounds, length = 120, 80

// Random events happen to a simulated node. After each of them the snapshot must be
// what an oracle computes from the whole history, which shares no code with the
// product; no device that is held is changed; nobody starts on a device that is not
// in his mode; and nothing is told twice.
func TestRandomStoriesAgreeWithTheOracle(t *testing.T) {
	seen, fates := map[node.Kind]int{}, map[string]int{}
	starts, acts := 0, 0
	for seed := range uint64(rounds) {
		s := newWalk(t, seed)
		for range length {
			s.happen()
			s.check()
		}
		for k, n := range s.seen {
			seen[k] += n
		}
		for f, n := range s.fates {
			fates[f] += n
		}
		starts, acts = starts+s.starts, acts+s.acts
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, k := range node.Kinds() {
		if seen[k] == 0 {
			t.Errorf("no story had a device that was %s: the test shows less than it says", k)
		}
	}
	for _, f := range []string{goesAtOnce, goesLater, stays, begins} {
		if fates[f] == 0 {
			t.Errorf("no pod %s: the test shows less than it says", f)
		}
	}
	if starts < rounds/2 || acts < rounds/4 {
		t.Errorf("%d starts and %d actions: the test shows next to nothing", starts, acts)
	}
}

// walk is one random history.
type walk struct {
	*hardware
	t      *testing.T
	random *rand.Rand
	now    node.Moment
	cards  []node.Facts
	config modes
	state  node.State
	oracle *oracle
	told   *told
	// begun are actions under way, with the mode they lead to.
	begun        map[sharing.DeviceID]begun
	pods         int
	starts, acts int
	seen         map[node.Kind]int
	fates        map[string]int
}

type begun struct {
	actions []node.Action
	mode    sharing.Mode
}

func newWalk(t *testing.T, seed uint64) *walk {
	s := &walk{
		hardware: newHardware(), t: t, random: rand.New(rand.NewPCG(seed, 1)), seen: map[node.Kind]int{}, fates: map[string]int{},
		config: modes{byDefault: sharing.HAMiCore, given: map[sharing.DeviceID]sharing.Mode{}},
		cards:  []node.Facts{card("GPU-0", 0, "A100", "1"), card("GPU-1", 1, "T4", "2"), card("GPU-2", 2, "P4", "3"), card("GPU-3", 3, "A100", "1")},
	}
	s.restart()
	return s
}

// restart ends the process: what it knew is gone, hardware and records stay.
func (s *walk) restart() {
	s.begun, s.oracle, s.told = map[sharing.DeviceID]begun{}, &oracle{}, newTold(s.t)
	s.state = node.New(node.Config{
		Node:   "n1",
		Powers: node.Powers{Serves: sharing.Modes(), Switches: true, Switched: switched()},
		Health: node.HealthRules{Ignored: node.ApplicationXIDs(), Quiet: 60},
	})
	s.send(node.Configured{Settings: node.Settings{Offers: s.config}})
}

func (s *walk) send(e node.Event) {
	before := s.state
	s.state = reduce(s.t, s.state, e)
	s.oracle.add(e)
	s.told.hear(node.Diff(before, s.state), s.state)
	if again := node.Diff(s.state, s.state); len(again) > 0 {
		s.t.Errorf("two equal states differ in %v", again)
	}
}

func (s *walk) any() sharing.DeviceID { return s.cards[s.random.IntN(len(s.cards))].UUID }

func (s *walk) happen() {
	s.now += node.Moment(s.random.IntN(40))
	id := s.any()
	why := fmt.Sprintf("because %d", s.random.IntN(3))
	switch s.random.IntN(36) {
	case 0, 1:
		s.scan()
	case 2:
		s.send(node.DriverFailed{Why: why})
	case 3, 4, 5, 6:
		for _, c := range s.cards {
			s.send(node.Answered{Device: c.UUID, At: s.now})
		}
	case 7:
		s.send(node.Silent{Device: id, Why: why})
	case 8:
		s.send(node.Faulted{Device: []sharing.DeviceID{id, id, ""}[s.random.IntN(3)], XID: []uint64{79, 31}[s.random.IntN(2)], At: s.now})
	case 9, 10:
		s.edit(id)
	case 11:
		s.send(node.ConfigLost{Settings: node.Settings{Offers: s.config}, Why: why})
	case 12:
		s.send(node.Configured{Settings: node.Settings{Offers: s.config}})
	case 13:
		part := []node.Part{node.PartPublishing, node.PartNVIDIARuntime, node.PartRuntime}[s.random.IntN(3)]
		s.send([]node.Event{node.Troubled{Part: part, Why: why}, node.Recovered{Part: part}}[s.random.IntN(2)])
	case 14:
		if s.random.IntN(5) == 0 {
			s.restart()
		}
	case 15, 16, 17, 18, 19:
		s.start(id)
	case 20, 21:
		s.end(sharing.Owner(fmt.Sprint("pod-", s.random.IntN(s.pods+1))))
	case 22:
		owner := sharing.Owner(fmt.Sprint("pod-", s.random.IntN(s.pods+1)))
		s.send(node.Misplaced{Owner: owner, Fate: node.Fate(s.random.IntN(2)), Why: why})
	case 23:
		mode := []sharing.Mode{sharing.MPS, sharing.HAMiCore}[s.random.IntN(2)]
		s.send([]node.Event{node.ServiceLost{Mode: mode, Why: why}, node.ServiceBack{Mode: mode}}[s.random.IntN(2)])
	case 24:
		s.send(node.Recovered{Part: node.PartRuntime})
	case 25:
		states := []string{"", "upgrade-required", "cordon-required", "pod-restart-required", "upgrade-done", "upgrade-failed"}
		s.send(node.Labelled{Labels: map[string]string{"nvidia.com/gpu-driver-upgrade-state": states[s.random.IntN(len(states))]}})
	case 26:
		s.release(s.random.IntN(3) == 0)
	case 27:
		s.send(node.Labelled{})
		s.release(false)
	case 28:
		others := []node.OtherOffer{{Resource: "a.example/gpu", IDs: []string{string(id) + "::1"}}, {Resource: "b.example/gpu", IDs: []string{string(s.any()), "x"}}}
		which := s.random.IntN(4)
		if which > 1 {
			others[which-2].Driver, others[which-2].Resource = "c.example", ""
		}
		s.send(node.OfferedByOthers{Offers: others[which%2:]})
	case 29:
		s.send(node.OfferedByOthers{})
	default:
		for _, c := range s.cards {
			s.work(c.UUID)
		}
	}
}

// release has an administrator want the driver, or no longer, and the plugin let it go if it may.
func (s *walk) release(is bool) {
	s.send(node.DriverWanted{Is: is})
	s.send(node.DriverGone{Is: s.state.MayReleaseDriver()})
}

func (s *walk) scan() {
	var found []node.Facts
	slots := map[string]bool{}
	for _, i := range s.random.Perm(len(s.cards)) {
		if c := s.cards[i]; s.random.IntN(15) > 0 && !slots[c.PCI] {
			found, slots[c.PCI] = append(found, c), true
		}
	}
	s.send(node.Scanned{Devices: found, Unread: s.random.IntN(3) / 2 * (len(s.cards) - len(found))})
}

func (s *walk) edit(id sharing.DeviceID) {
	next := modes{byDefault: s.config.byDefault, given: map[sharing.DeviceID]sharing.Mode{}}
	for k, v := range s.config.given {
		next.given[k] = v
	}
	next.given[id] = append(sharing.Modes(), hidden)[s.random.IntN(5)]
	s.config = next
	s.send(node.Configured{Settings: node.Settings{Offers: next}})
}

// start is a pod that was placed in some mode.
func (s *walk) start(id sharing.DeviceID) {
	s.pods++
	owner := sharing.Owner(fmt.Sprint("pod-", s.pods))
	mode := sharing.Modes()[s.random.IntN(4)]
	if d, ok := deviceOf(s.state.Inventory(), id); ok && s.random.IntN(4) > 0 {
		mode = d.Mode
	}
	ask := node.Ask{Owner: owner, Container: "main", Slots: 1, Placement: sharing.Placement{
		Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{{Device: id, Mode: mode}}}},
	}}
	_, no := node.Admit(s.state, ask, false, nil)
	got := fateOf(no)
	if want := s.oracle.fate(s.cards, id, mode); got != want {
		s.t.Errorf("after %d events a pod placed on %s in %s %s, the oracle says that it %s: %v", len(s.oracle.history), id, mode, got, want, no)
	}
	s.fates[got]++
	if no != nil {
		return
	}
	s.starts++
	if _, busy := s.begun[id]; busy {
		s.t.Errorf("%s starts on %s, which is being changed", owner, id)
	}
	for _, h := range s.holders(id) {
		if h.Mode != mode {
			s.t.Errorf("%s starts in %s on %s, which %s holds in %s", owner, mode, id, h.Owner, h.Mode)
		}
	}
	if c, _ := s.state.Condition(id); c.Kind != node.Ready {
		s.t.Errorf("%s starts on %s, which is %s", owner, id, c.Kind)
	}
	if want := slices.DeleteFunc(switched(), func(m sharing.Mode) bool { return m != mode }); !slices.Equal(s.modesOf(id), want) {
		s.t.Errorf("%s starts in %s on %s, which is in %v", owner, mode, id, s.modesOf(id))
	}
	s.records = append(s.records, node.Record{Owner: owner, Pod: string(owner), Mode: mode, Devices: []sharing.DeviceID{id}})
}

// work does the next thing that the plan has for a device, as the agent would.
func (s *walk) work(id sharing.DeviceID) {
	if b, busy := s.begun[id]; busy {
		s.act(id, b)
		return
	}
	// The agent looks at every device it may change now and then.
	if c, _ := s.state.Condition(id); !c.Kind.May().Change {
		return
	}
	if s.random.IntN(10) == 0 {
		s.send(node.LookFailed{Device: id, Why: "no answer"})
		return
	}
	s.send(node.Looked{Device: id, Entered: s.modesOf(id), Holders: s.holders(id)})
	var b begun
	for _, step := range node.Plan(s.state) {
		if step.Device == id && step.Kind == node.Act {
			b.actions, b.mode = append(b.actions, step.Action), step.Wanted
		}
	}
	if len(b.actions) > 0 {
		s.begun[id] = b
	}
}

// act takes one of the actions that were begun.
func (s *walk) act(id sharing.DeviceID, b begun) {
	if held := s.holders(id); len(held) > 0 {
		s.t.Errorf("%s with %s, which %v hold", b.actions[0], id, held)
	}
	if s.random.IntN(6) == 0 {
		delete(s.begun, id)
		s.send(node.ChangeFailed{Device: id, Mode: b.mode, Why: fmt.Sprintf("cannot %s", b.actions[0]), Manual: s.random.IntN(2) == 0})
		return
	}
	s.acts++
	s.hardware.act(id, b.actions[0])
	if b.actions = b.actions[1:]; len(b.actions) > 0 {
		s.begun[id] = b
		return
	}
	delete(s.begun, id)
	s.send(node.ModeEntered{Device: id, Mode: b.mode})
}

// check compares the snapshot with the oracle's.
func (s *walk) check() {
	inv := s.state.Inventory()
	for _, c := range s.cards {
		want, known := s.oracle.condition(c)
		got, has := s.state.Condition(c.UUID)
		if has != known || has && got != want {
			s.t.Errorf("after %d events %s is %+v, the oracle says %+v", len(s.oracle.history), c.UUID, got, want)
		}
		if !has {
			continue
		}
		s.seen[got.Kind]++
		d, listed := inv.Device(c.UUID)
		if listed && d.Healthy != (got.Kind == node.Ready) {
			s.t.Errorf("%s is %s and published with health %v", c.UUID, got.Kind, d.Healthy)
		}
	}
}
