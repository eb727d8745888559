// SPDX-License-Identifier: Apache-2.0

package worth_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/worth"
)

// broken is a device that does not work.
func broken(v sharing.View) sharing.View {
	d := *v.Device
	d.Healthy = false
	v.Device = &d
	return v
}

// slots is a device with at most so many shares.
func slots(v sharing.View, n int) sharing.View {
	d := *v.Device
	d.MaxShares = n
	v.Device = &d
	return v
}

// mixOf is so many pods of each kind.
func mixOf(times int, kinds ...worth.Kind) worth.Mix {
	var a worth.Arrivals
	for i, k := range kinds {
		for n := range times {
			a.Note(sharing.Owner(fmt.Sprint(i, ".", n)), k)
		}
	}
	return a.Mix()
}

func TestTheFreeDevicesThatAnAveragePodCanUse(t *testing.T) {
	several := worth.KindOf(podFor(2, 100), worth.Amounts{})
	for says, c := range map[string]struct {
		kinds        []worth.Kind
		nodes        [][]sharing.View
		free, usable float64
	}{
		"halves use an empty device":           {kinds: []worth.Kind{asks(50, 0)}, nodes: [][]sharing.View{{card(0, "T4", 0)}}, free: 1, usable: 1},
		"halves do not use 40 % of a device":   {kinds: []worth.Kind{asks(50, 0)}, nodes: [][]sharing.View{{card(0, "T4", 60)}}, free: 0.4},
		"halves use half of 70 %":              {kinds: []worth.Kind{asks(50, 0)}, nodes: [][]sharing.View{{card(0, "T4", 30)}}, free: 0.7, usable: 0.5},
		"a device without slots is free only":  {kinds: []worth.Kind{asks(10, 0)}, nodes: [][]sharing.View{{slots(card(0, "T4", 10), 1)}}, free: 0.9},
		"one slot is left":                     {kinds: []worth.Kind{asks(10, 0)}, nodes: [][]sharing.View{{slots(card(0, "T4", 10), 2)}}, free: 0.9, usable: 0.1},
		"a broken device is not free":          {kinds: []worth.Kind{asks(50, 0)}, nodes: [][]sharing.View{{broken(card(0, "T4", 0))}}},
		"a full device is not free":            {kinds: []worth.Kind{asks(50, 0)}, nodes: [][]sharing.View{{card(0, "T4", 100)}}},
		"pods for another model use nothing":   {kinds: []worth.Kind{asks(50, 0, "A30")}, nodes: [][]sharing.View{{card(0, "T4", 0)}}, free: 1},
		"pairs need both on one node":          {kinds: []worth.Kind{several}, nodes: [][]sharing.View{{card(0, "T4", 0)}, {card(1, "T4", 0)}}, free: 2},
		"pairs use two of three":               {kinds: []worth.Kind{several}, nodes: [][]sharing.View{{card(0, "T4", 0), card(1, "T4", 0), card(2, "T4", 0)}}, free: 3, usable: 2},
		"small pods use it and large ones not": {kinds: []worth.Kind{asks(25, 0), asks(75, 0)}, nodes: [][]sharing.View{{card(0, "T4", 50)}}, free: 0.5, usable: 0.125},
	} {
		if free, usable, ok := mixOf(60, c.kinds...).Usable(c.nodes); !ok || !close(free, c.free) || !close(usable, c.usable) {
			t.Errorf("%s: %v free and %v usable, want %v and %v", says, free, usable, c.free, c.usable)
		}
	}
	if _, _, ok := mixOf(60, worth.KindOf(nil, worth.Amounts{CPU: 1000})).Usable([][]sharing.View{{card(0, "T4", 0)}}); ok {
		t.Error("pods without devices use devices")
	}
}

// One kind alone: shares are put on devices one by one until none fits.
func TestUsableIsWhatSharesOfOneKindFill(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		size := sharing.Percent(1 + random.IntN(99))
		views, unused, filled := make([]sharing.View, 1+random.IntN(6)), 0, 0
		for i := range views {
			used := sharing.Percent(random.IntN(100))
			views[i] = card(i, "T4", used)
			left := 100 - int(used)
			unused += left
			shares := views[i].Sharers()
			for ; left >= int(size) && shares < views[i].Device.MaxShares; shares++ {
				left, filled = left-int(size), filled+int(size)
			}
		}
		got, usable, ok := mixOf(60, asks(size, 0)).Usable([][]sharing.View{views})
		if !ok || !close(got, float64(unused)/100) || !close(usable, float64(filled)/100) {
			t.Fatalf("shares of %d %% on %d devices: %v free and %v usable, want %d and %d hundredths", size, len(views), got, usable, unused, filled)
		}
	}
}
