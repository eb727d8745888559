// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// experiment is one number of the plan; it adds rows to the bench's table. limit is
// the most it may take: their sum may exceed the whole run's, which skips what is left.
type experiment struct {
	number int
	title  string
	limit  time.Duration
	run    func(context.Context, *bench)
}

// experiments are those of the plan, in its order and with its numbers.
func experiments() []experiment {
	return []experiment{
		{0, "no limits: identity", 100 * time.Second, identity},
		{1, "memory: plain", 40 * time.Second, plainMemory},
		{2, "memory: pools", 30 * time.Second, pools},
		{3, "memory: physical handles", 20 * time.Second, physical},
		{4, "out of memory, and on", 90 * time.Second, outOfMemory},
		{5, "what programs see", 50 * time.Second, views},
		{6, "many processes", 60 * time.Second, crowd},
		{7, "compute share", 230 * time.Second, shares},
		{8, "two tenants at once", 100 * time.Second, pairs},
		{9, "borrowing and giving back", 60 * time.Second, borrowing},
		{10, "cost of a launch", 60 * time.Second, launchCost},
		{11, "cost of an allocation", 40 * time.Second, allocationCost},
		{12, "cost for PyTorch", 90 * time.Second, torchCost},
		{13, "HAMi-core beside it", 120 * time.Second, beside},
		{14, "cost of a token", 270 * time.Second, decodeCost},
		{15, "decoders at once", 210 * time.Second, decodePairs},
	}
}

// choose picks experiments by a text such as "1,7-9"; all for an empty one.
func choose(all []experiment, text string) ([]experiment, error) {
	if text == "" {
		return all, nil
	}
	wanted := map[int]bool{}
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(last)
		}
		if err != nil || from > to || from < 0 || to >= len(all) {
			return nil, fmt.Errorf("-experiments %s: %q is no number from 0 to %d and no range of them", text, part, len(all)-1)
		}
		for n := from; n <= to; n++ {
			wanted[n] = true
		}
	}
	var chosen []experiment
	for _, e := range all {
		if wanted[e.number] {
			chosen = append(chosen, e)
		}
	}
	return chosen, nil
}

// scale is how long and how often things are measured.
type scale struct {
	settle, window   time.Duration // of a throughput; the first is not measured
	repeats          int           // of a throughput
	processes        int           // of the crowd
	starts           int           // rounds of starting all of them
	poolRounds       int
	rounds, launches int           // of the costs: interleaved rounds, and launches in each
	pairs            int           // the same of allocations
	trace            time.Duration // of borrowing, half alone and half not
	step             time.Duration // of its windows
	torchWindow      time.Duration
	turn             time.Duration // of a decoder, with the time in which it settles
	decodes          int           // rounds of turns of what a token costs
	decodePairs      int           // the same of shares
}

// onCard follows the plan; experiments 0 to 13 come to seven or eight minutes with PyTorch, 14 and
// 15 to as much again.
func onCard() scale {
	return scale{
		settle: 300 * time.Millisecond, window: time.Second, repeats: 5, processes: 16, starts: 3, poolRounds: 1000,
		rounds: 200, launches: 5000, pairs: 500, trace: 2400 * time.Millisecond, step: 100 * time.Millisecond,
		torchWindow: 1500 * time.Millisecond, turn: 2 * time.Second, decodes: 10, decodePairs: 3,
	}
}

// onFake is the same in small.
func onFake() scale {
	return scale{
		settle: 300 * time.Millisecond, window: 250 * time.Millisecond, repeats: 2, processes: 6, starts: 2, poolRounds: 50,
		rounds: 7, launches: 1000, pairs: 500, trace: 1400 * time.Millisecond, step: 100 * time.Millisecond,
		torchWindow: 100 * time.Millisecond, turn: 450 * time.Millisecond, decodes: 2, decodePairs: 2,
	}
}
