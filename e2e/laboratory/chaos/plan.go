// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"

	"deviceshare/e2e/sandbox"
)

// Action is what is done to the cluster.
type Action string

// The actions.
const (
	Kill      Action = "kill"      // SIGKILL
	Freeze    Action = "freeze"    // SIGSTOP, and SIGCONT after a while
	Configure Action = "configure" // an edit of the nodes' ConfigMap
	Tune      Action = "tune"      // an edit of the devices' ConfigMap
	Break     Action = "break"     // a device fails, and works again after a while
	Cut       Action = "cut"       // the device plugin does not reach the API server for a while
	Fill      Action = "fill"      // the disk with the device plugin's records is full for a while
)

// Event is one action.
type Event struct {
	Number int
	Action Action
	// Target is a component, a device's index, or the text of a ConfigMap.
	Target string
	// For is how long it lasts, of those that end.
	For time.Duration
	// Pause is how long to wait before it.
	Pause time.Duration
	// Spare is how long a component that is killed now is not killed again.
	Spare time.Duration
	// Soon: what is killed now in a pod comes back within two seconds, as it does the first time.
	// By itself the kubelet looks again after ten.
	Soon bool
}

func (e Event) String() string {
	text := fmt.Sprintf("%d %s %s", e.Number, e.Action, e.Target)
	if e.For > 0 {
		text += fmt.Sprintf(" for %.1f s", e.For.Seconds())
	}
	return text
}

// chance is an entry of a list to draw from: what, and how often beside the others.
type chance[T any] struct {
	what   T
	weight int
}

// longestPause and longestSpare are the most of an event's Pause and Spare.
const (
	longestPause = 600 * time.Millisecond
	longestSpare = 6 * time.Second
)

// Plan says what happens next. Equal seeds give equal plans.
type Plan struct {
	random *rand.Rand
	number int
}

// NewPlan begins a plan.
func NewPlan(seed uint64) *Plan { return &Plan{random: rand.New(rand.NewPCG(seed, 0))} }

// Next is the next event. Most are kills.
func (p *Plan) Next() Event {
	p.number++
	e := Event{Number: p.number, Pause: p.between(0, longestPause)}
	e.Action = draw(p.random, []chance[Action]{{Kill, 87}, {Freeze, 4}, {Configure, 3}, {Tune, 1}, {Break, 3}, {Cut, 1}, {Fill, 1}})
	switch e.Action {
	case Kill:
		e.Target, e.Spare = draw(p.random, victims()), p.between(0, longestSpare)
		e.Soon = p.random.IntN(4) > 0
	case Freeze:
		e.Target, e.For = draw(p.random, victims()), p.between(time.Second, 8*time.Second)
	case Configure:
		e.Target = p.settings()
	case Tune:
		e.Target = draw(p.random, tunings())
	case Break:
		e.Target = draw(p.random, []chance[string]{{"xid 3", 2}, {"xid 4", 2}, {"lose 6", 1}})
		e.For = p.between(time.Second, 10*time.Second)
	case Cut, Fill:
		e.Target, e.For = sandbox.DevicePlugin, p.between(time.Second, 15*time.Second)
	}
	return e
}

// Leader and Standby are the two schedulers, as targets.
const (
	Leader  = "scheduler that leads"
	Standby = "scheduler that stands by"
)

// victims are the components, by how often they are taken: the more of the others wait for one
// until it is back, the more seldom. Otherwise nothing would ever happen that could go wrong.
func victims() []chance[string] {
	return []chance[string]{
		{sandbox.DevicePlugin, 50}, {sandbox.Webhook, 30}, {sandbox.Kubelet, 8}, {Leader, 3}, {Standby, 4},
		{sandbox.Containerd, 3}, {sandbox.APIServer, 2},
	}
}

// Lost is the index of the device that fails so that its programs fail as well; Moved is that of
// the device whose mode is edited.
const (
	Lost  = 6
	Moved = 7
)

// base gives devices of every mode, whatever the last device is.
const base = `{"nodeconfig":[{"name":"` + sandbox.NodeName + `","operatingmode":"hami-core","devices":[` +
	`{"index":0,"mode":"mig"},{"index":1,"mode":"mps"},{"index":2,"mode":"time-slicing"}%s]}]}`

// settings is an edit of the nodes' ConfigMap: mostly another mode for one device, now and then a
// text that is wrong.
func (p *Plan) settings() string {
	mode := draw(p.random, []chance[string]{{"hami-core", 2}, {"mig", 2}, {"mps", 2}, {"time-slicing", 2}, {"none-such", 1}})
	return fmt.Sprintf(base, fmt.Sprintf(`,{"index":%d,"mode":%q}`, Moved, mode))
}

// Quiet is the edit with which a run begins and ends.
func Quiet() string { return fmt.Sprintf(base, "") }

// tunings are edits of the devices' ConfigMap. None changes what devices offer, so that all that
// was given still fits. One is wrong.
func tunings() []chance[string] {
	return []chance[string]{{Untuned(), 3}, {"nvidia: {migPolicy: best-fit}", 2}, {"nvidia: {idleCompute: leave}", 2},
		{"nvidia: {contextMemory: free}", 2}, {"nvidia: {migPolicy: none-such}", 1}}
}

// Untuned is the edit of the devices' ConfigMap that sets every default.
func Untuned() string { return "nvidia: {}" }

func (p *Plan) between(least, most time.Duration) time.Duration {
	return least + time.Duration(p.random.Int64N(int64(most-least)))
}

// draw takes an entry at random.
func draw[T any](random *rand.Rand, of []chance[T]) T {
	sum := 0
	for _, c := range of {
		sum += c.weight
	}
	n := random.IntN(sum)
	for _, c := range of {
		if n -= c.weight; n < 0 {
			return c.what
		}
	}
	return of[len(of)-1].what // not reached: n is less than the sum
}
