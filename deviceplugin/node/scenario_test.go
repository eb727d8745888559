// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest/story"
)

var rewrite = flag.Bool("rewrite", false, "write what happens into the scenario files")

// TestScenarios runs the stories in testdata/*.txt; testdata/README.md describes the
// commands.
func TestScenarios(t *testing.T) {
	story.Run(t, 25, *rewrite, func(t *testing.T) story.World {
		w := &world{
			t: t, hardware: newHardware(), geometry: "h1", serves: sharing.Modes(),
			config: modes{byDefault: sharing.HAMiCore, given: map[sharing.DeviceID]sharing.Mode{}},
		}
		w.state = w.fresh()
		return w
	})
}

// world is a plugin without effects over simulated hardware.
type world struct {
	t        *testing.T
	hardware *hardware
	config   modes
	geometry string // the hash of the geometries in force
	lost     string // why the configuration is not known
	serves   []sharing.Mode
	found    []node.Facts
	state    node.State
	out      []string
}

// fresh is the state of a plugin that has just started and has registered.
func (w *world) fresh() node.State {
	return node.Reduce(node.New(node.Config{
		Node:   "n1",
		Powers: node.Powers{Serves: w.serves, Switches: true, Switched: switched()},
		Health: node.HealthRules{Ignored: node.ApplicationXIDs(), Quiet: 60},
	}), node.Kubelet{Knows: true})
}

func (w *world) say(format string, args ...any) { w.out = append(w.out, fmt.Sprintf(format, args...)) }

// send reduces an event and writes down what became different.
func (w *world) send(e node.Event) {
	before := w.state
	w.state = reduce(w.t, w.state, e)
	for _, id := range w.state.IDs() {
		now, _ := w.state.Condition(id)
		if was, known := before.Condition(id); !known || was != now {
			w.say("%s is %s", id, sentence(now))
		}
	}
	for _, n := range node.Diff(before, w.state) {
		w.say("  tell %s", strings.Join(strings.Fields(fmt.Sprintf("%s %s%s%s %s %s", n.Kind, n.Device, n.Part, podOf(n), modeOf(n), n.Detail)), " "))
	}
	if again := node.Diff(w.state, w.state); len(again) > 0 {
		w.t.Errorf("two equal states differ in %v", again)
	}
}

func sentence(c node.Condition) string {
	if c.Detail == "" {
		return c.Kind.String()
	}
	return c.Kind.String() + ": " + c.Detail
}

// modeOf is the mode of notices that are about one.
func modeOf(n node.Notice) string {
	if n.Kind >= node.ModeWaits && n.Kind <= node.ModeByHand {
		return string(n.Mode)
	}
	return ""
}

// Do carries out commands and returns what became different.
func (w *world) Do(commands []string) string {
	w.out = nil
	for _, c := range commands {
		w.run(strings.Fields(c))
	}
	return strings.Join(w.out, "\n")
}

func (w *world) run(f []string) {
	rest := strings.Join(f[1:], " ")
	switch f[0] {
	case "scan":
		w.scan(f[1:])
	case "driver":
		w.send(node.DriverFailed{Why: rest})
	case "probe", "silent", "xid":
		w.health(f)
	case "config":
		w.configure(f[1:])
	case "look":
		w.look(sharing.DeviceID(f[1]), strings.Join(f[2:], " "))
	case "act":
		w.act(sharing.DeviceID(f[1]), f[2:])
	case "settle":
		w.settle()
	case "finish":
		id, mode := sharing.DeviceID(f[1]), sharing.Mode(f[2])
		w.hardware.act(id, node.Action{Mode: mode})
		w.send(node.ModeEntered{Device: id, Mode: mode})
	case "restart":
		if len(f) > 1 {
			w.serves = nil
			for _, m := range f[2:] {
				w.serves = append(w.serves, sharing.Mode(m))
			}
		}
		w.state = w.fresh()
		w.applyConfig()
		w.send(node.Scanned{Devices: w.found})
	case "reset":
		w.hardware.entered[sharing.DeviceID(f[1])] = nil
	case "kubelet":
		w.send(node.Kubelet{Knows: f[1] == "knows"})
	case "stop":
		w.send(node.Stopping{})
	case "withdraw":
		w.send(node.Withdrawing{})
	case "withdrawn":
		w.say("%v", w.state.IsWithdrawn())
	case "trouble":
		w.send(node.Troubled{Part: node.Part(f[1]), Why: strings.Join(f[2:], " ")})
	case "works":
		w.send(node.Recovered{Part: node.Part(f[1])})
	case "lacks":
		w.send(node.ServiceLost{Mode: sharing.Mode(f[1]), Why: strings.Join(f[2:], " ")})
	case "serves":
		w.send(node.ServiceBack{Mode: sharing.Mode(f[1])})
	case "upgrade":
		w.send(node.Labelled{Labels: map[string]string{"nvidia.com/gpu-driver-upgrade-state": rest}})
	case "release-driver":
		w.send(node.DriverWanted{Is: rest != "no"})
		w.say("may be let go: %v", w.state.MayReleaseDriver())
	case "licence":
		w.licence(f[1:])
	case "others":
		w.send(node.OfferedByOthers{Offers: otherOffers(f[1:])})
	case "driver-gone":
		w.send(node.DriverGone{Is: rest != "no"})
	case "hold":
		w.holding(f[1:])
	case "show":
		w.show()
	case "published":
		w.published()
	case "plan":
		for _, s := range node.Plan(w.state) {
			w.say("%s", step(s))
		}
	default:
		w.pod(f)
	}
}

// scan takes cards: GPU-0=A100@1 is an A100 in slot 1.
func (w *world) scan(cards []string) {
	w.found = nil
	unread := 0
	for i, c := range cards {
		if c == "silent" {
			unread++
			continue
		}
		id, kind, _ := strings.Cut(c, "=")
		kind, slot, _ := strings.Cut(kind, "@")
		w.found = append(w.found, card(id, i, kind, slot))
	}
	w.send(node.Scanned{Devices: w.found, Unread: unread})
}

// licence has the driver say something of a licence: "GPU-0 none on 1", "GPU-0 ok on 1", or
// "GPU-0 30 on 1" for one until day 30.
func (w *world) licence(f []string) {
	days := func(text string) int64 {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			w.t.Fatalf("licence: %v", err)
		}
		return int64(n * 24 * 3600)
	}
	said := node.Licence{Valid: f[1] != "none"}
	if f[1] != "none" && f[1] != "ok" {
		said.Ends = days(f[1])
	}
	w.send(node.LicenceRead{Device: sharing.DeviceID(f[0]), Licence: said, Now: days(f[3])})
}

func (w *world) health(f []string) {
	id, at := sharing.DeviceID(f[1]), 0
	if id == "all" {
		id = ""
	}
	if i := slices.Index(f, "at"); i >= 0 {
		at, _ = strconv.Atoi(f[i+1])
	}
	switch f[0] {
	case "probe":
		w.send(node.Answered{Device: id, At: node.Moment(at)})
	case "silent":
		w.send(node.Silent{Device: id, Why: strings.Join(f[2:], " ")})
	case "xid":
		xid, _ := strconv.Atoi(f[2])
		w.send(node.Faulted{Device: id, XID: uint64(xid), At: node.Moment(at)})
	}
}

// configure edits modes: GPU-0=mps, default=mig, or the geometries, or "lost" and why.
func (w *world) configure(f []string) {
	w.lost = ""
	if len(f) > 0 && f[0] == "lost" {
		w.lost, f = strings.Join(f[1:], " "), nil
	}
	given := map[sharing.DeviceID]sharing.Mode{}
	for id, m := range w.config.given {
		given[id] = m
	}
	w.config.given = given
	for _, edit := range f {
		id, mode, _ := strings.Cut(edit, "=")
		switch id {
		case "default":
			w.config.byDefault = sharing.Mode(mode)
		case "geometries":
			w.geometry = mode
		default:
			w.config.given[sharing.DeviceID(id)] = sharing.Mode(mode)
		}
	}
	w.applyConfig()
}

func (w *world) applyConfig() {
	s := node.Settings{Offers: w.config, GeometryHash: w.geometry}
	if w.lost != "" {
		w.send(node.ConfigLost{Settings: s, Why: w.lost})
		return
	}
	w.send(node.Configured{Settings: s})
}

// look looks at a device; it fails if there is a reason.
func (w *world) look(id sharing.DeviceID, fails string) {
	if fails != "" {
		w.send(node.LookFailed{Device: id, Why: fails})
		return
	}
	w.send(node.Looked{Device: id, Entered: w.hardware.modesOf(id), Holders: w.hardware.holders(id)})
}

// act takes the planned actions with a device. "fails <why>" fails the first,
// "manual <why>" needs a person for it, "crash <n>" ends the process after n.
func (w *world) act(id sharing.DeviceID, f []string) {
	how, why := "", ""
	if len(f) > 0 {
		how, why = f[0], strings.Join(f[1:], " ")
	}
	var wanted sharing.Mode
	done := 0
	for _, s := range node.Plan(w.state) {
		if s.Device != id || s.Kind != node.Act {
			continue
		}
		wanted = s.Wanted
		if how == "fails" || how == "manual" {
			w.send(node.ChangeFailed{Device: id, Mode: wanted, Why: why, Manual: how == "manual"})
			return
		}
		if how == "crash" && why == strconv.Itoa(done) {
			w.say("the process ends")
			w.run([]string{"restart"})
			return
		}
		if len(w.hardware.holders(id)) > 0 {
			w.t.Errorf("%s with %s, which is held", s.Action, id)
		}
		w.say("%s: %s", id, s.Action)
		w.hardware.act(id, s.Action)
		done++
	}
	if how == "crash" {
		w.say("the process ends")
		w.run([]string{"restart"})
		return
	}
	if done > 0 {
		w.send(node.ModeEntered{Device: id, Mode: wanted})
	}
}

// settle carries out the plan until it stays the same.
func (w *world) settle() {
	for before := ""; before != fmt.Sprintf("%+v", w.state); {
		before = fmt.Sprintf("%+v", w.state)
		for _, id := range w.state.IDs() {
			if c, _ := w.state.Condition(id); c.Kind.May().Change {
				w.look(id, "")
				w.act(id, nil)
			}
		}
	}
}

// pod starts and ends pods:
//
//	pod a on GPU-0 mps      placed on the device in a mode; starts a container
//	again a on GPU-0 mps    starts another container of it
//	legacy a on GPU-0       runs, started by another device plugin
//	lost a                  its records are lost; it runs
//	unreadable a            runs, and nobody can read what it was given
//	end a                   it ends and is released
//	gone a                  it has ended
//	misplaced a kept WHY    it was refused for good, and is kept or evicted
func (w *world) pod(f []string) {
	name := f[1]
	owner := sharing.Owner(name)
	switch f[0] {
	case "pod", "again":
		w.begin(owner, sharing.DeviceID(f[3]), sharing.Mode(f[4]))
	case "legacy":
		w.hardware.running = append(w.hardware.running, node.Running{Owner: owner, Pod: "ns/" + name, Placement: of(sharing.Share{Device: sharing.DeviceID(f[3])})})
	case "unreadable":
		w.hardware.running = append(w.hardware.running, node.Running{Owner: owner, Pod: "ns/" + name, Unreadable: true})
	case "lost":
		for _, r := range w.hardware.recordsOf(owner) {
			run := node.Running{Owner: owner, Pod: r.Pod, Placement: of(sharing.Share{Device: r.Devices[0], Mode: r.Mode})}
			w.hardware.end(owner)
			w.hardware.running = append(w.hardware.running, run)
		}
	case "end":
		w.hardware.end(owner)
		w.send(node.OwnerGone{Owner: owner})
		w.send(node.Released{Owner: owner})
	case "gone":
		w.send(node.OwnerGone{Owner: owner})
	case "misplaced":
		fate := map[string]node.Fate{"evicted": node.Evicted, "kept": node.Kept}[f[2]]
		w.send(node.Misplaced{Owner: owner, Namespace: "ns", Pod: name, Fate: fate, Why: strings.Join(f[3:], " ")})
	case "release":
		if len(f) > 2 && f[2] == "fails" {
			w.send(node.ReleaseFailed{Owner: owner})
			return
		}
		w.hardware.end(owner)
		w.send(node.Released{Owner: owner})
	default:
		w.t.Fatalf("unknown command %q", strings.Join(f, " "))
	}
}

func (w *world) begin(owner sharing.Owner, id sharing.DeviceID, mode sharing.Mode) {
	share := sharing.Share{Device: id, Mode: mode, Memory: sharing.GiB}
	if mode == sharing.MIG {
		share.Partition = sharing.Partition{Profile: "1g.2gb", Size: 1}
	}
	ask := node.Ask{Owner: owner, Container: "main", Slots: 1, Placement: sharing.Placement{
		Node: "n1", GeometryHash: "h1", Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{share}}},
	}}
	claim, no := node.Admit(w.state, ask, len(w.hardware.recordsOf(owner)) > 0, w.hardware.running)
	if no != nil {
		final := ""
		switch {
		case no.IsFinal():
			final = " (place it anew)"
		case no.IsLimited():
			final = " (place it anew if that lasts)"
		}
		w.say("%s refused, %s%s: %s", owner, no.Reason, final, no)
		return
	}
	w.say("%s starts on %s in %s", owner, claim.Devices[0].Device.ID, claim.Mode)
	w.hardware.records = append(w.hardware.records, node.Record{Owner: owner, Pod: "ns/" + string(owner), Mode: mode, Devices: []sharing.DeviceID{id}})
}

// holding has pods of a node hold devices: "a=GPU-0/mps".
func (w *world) holding(pods []string) {
	var all node.Holdings
	for _, p := range pods {
		name, given, _ := strings.Cut(p, "=")
		id, mode, _ := strings.Cut(given, "/")
		all.Pods = append(all.Pods, node.Holding{Owner: sharing.Owner(name), Namespace: "ns", Pod: name, Asked: node.Amounts{Number: 1}, Placement: sharing.Placement{
			Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{{Device: sharing.DeviceID(id), Mode: sharing.Mode(mode)}}}},
		}})
	}
	w.send(all)
}

// show prints the condition of every device with what is permitted.
func (w *world) show() {
	for _, id := range w.state.IDs() {
		c, _ := w.state.Condition(id)
		w.say("%s %s %s", id, permitted(c.Kind), sentence(c))
	}
}

// permitted is what may be done: Place Begin Resume cHange.
func permitted(k node.Kind) string {
	p := k.May()
	out := ""
	for i, yes := range []bool{p.Place, p.Begin, p.Resume, p.Change} {
		if yes {
			out += string("PBRH"[i])
		} else {
			out += "-"
		}
	}
	return out
}

// published prints the node's annotation as far as health goes.
func (w *world) published() {
	inv := w.state.Published()
	for i := range inv.Devices {
		d := &inv.Devices[i]
		line := fmt.Sprintf("%s %s healthy=%v", d.ID, d.Mode, d.Healthy)
		if d.Changing {
			line += " changing"
		}
		if d.Virtual {
			line += " virtual, licence=" + string(d.Licence)
		}
		if d.Reason != "" {
			line += ": " + d.Reason
		}
		w.say("%s", line)
	}
}

func step(s node.Step) string {
	text := map[node.StepKind]string{
		node.Look: "look at " + string(s.Device), node.Act: string(s.Device) + ": " + s.Action.String(), node.TakeBack: "take back " + string(s.Owner),
	}[s.Kind]
	if s.Attempts > 0 {
		text += fmt.Sprintf(", failed %d times", s.Attempts)
	}
	if s.ByHand {
		text += ", by hand"
	}
	return text
}

func deviceOf(inv sharing.Inventory, id sharing.DeviceID) (sharing.Device, bool) {
	if d, ok := inv.Device(id); ok {
		return *d, true
	}
	return sharing.Device{}, false
}

// podOf is the pod of notices that are about one, and what becomes of it.
func podOf(n node.Notice) string {
	if n.Kind == node.PodMisplaced {
		return n.Pod.Namespace + "/" + n.Pod.Pod + " " + n.Pod.Fate.String()
	}
	var held []string
	if n.Kind == node.DriverPlanned || n.Kind == node.DriverClaimed {
		for i := range n.Pods {
			held = append(held, n.Pods[i].Pod)
		}
	}
	return strings.Join(held, ",")
}
