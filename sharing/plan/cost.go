// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
)

const (
	// Levels is how many ranks of priority are told apart.
	Levels = 16
	// graceStep is the step in which grace periods are compared, in seconds.
	graceStep = 30
	// mostWork is the most work that the end of a pod loses on each device, in seconds, unless it
	// says otherwise: who runs longer writes checkpoints.
	mostWork = 3600
)

// Cost is what a plan costs, compared from the left.
type Cost struct {
	// Lost is how many pods of each level leave, the highest level first.
	Lost [Levels]int32
	// Gangs is how many gangs leave as a whole, or wait for those of their pods that move.
	Gangs int32
	// Moves is how many pods move. They are not lost.
	Moves int32
	// Turns adds up Victim.Turn.
	Turns int32
	// Grace is the longest grace period, in steps of 30 s.
	Grace int32
	// Work is what is lost, in minutes of one device.
	Work int64
	// Pods is how many leave.
	Pods int32
}

// Compare returns -1 if c is cheaper than d, 1 if it is dearer, and 0 if they are equal.
func (c Cost) Compare(d Cost) int {
	return cmp.Or(slices.Compare(c.Lost[:], d.Lost[:]), cmp.Compare(c.Gangs, d.Gangs), cmp.Compare(c.Moves, d.Moves), cmp.Compare(c.Turns, d.Turns),
		cmp.Compare(c.Grace, d.Grace), cmp.Compare(c.Work, d.Work), cmp.Compare(c.Pods, d.Pods))
}

// plus returns the cost of both.
func (c Cost) plus(d Cost) Cost {
	for i := range c.Lost {
		c.Lost[i] += d.Lost[i]
	}
	c.Gangs += d.Gangs
	c.Moves += d.Moves
	c.Turns += d.Turns
	c.Grace = max(c.Grace, d.Grace)
	c.Work += d.Work
	c.Pods += d.Pods
	return c
}

// minus returns c without a part of it. The grace of what is left is not known: it stays.
func (c Cost) minus(d Cost) Cost {
	for i := range c.Lost {
		c.Lost[i] -= d.Lost[i]
	}
	c.Gangs -= d.Gangs
	c.Moves -= d.Moves
	c.Turns -= d.Turns
	c.Work -= d.Work
	c.Pods -= d.Pods
	return c
}

// WorkLost is how much work the end of a pod loses on each of its devices, in seconds, if it has
// run for so long and says that it loses so much at most; 0 if it does not say.
func WorkLost(age, restart int64) int64 { return min(age, cmp.Or(restart, mostWork)) }

// costOf returns what the end of one pod costs that has so many devices.
func costOf(v *Victim, devices int) Cost {
	c := Cost{Turns: int32(v.Turn), Grace: int32((v.Grace + graceStep - 1) / graceStep), Pods: 1}
	c.Work = WorkLost(v.Age, v.Restart) / 60 * int64(devices)
	if v.isMover() {
		c.Moves = 1
	} else {
		c.Lost[Levels-1-min(max(v.Level, 0), Levels-1)] = 1
	}
	return c
}
