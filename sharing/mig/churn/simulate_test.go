// SPDX-License-Identifier: Apache-2.0

package churn_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
)

// sizes are the memory slices of 1g, 2g, 3g and 7g, which the mixes are of.
var sizes = [4]int{1, 2, 4, 8}

// mix is how often each of 1g, 2g, 3g and 7g is asked for.
type mix [4]float64

func (m mix) String() string { return fmt.Sprintf("%.2f %.2f %.2f %.2f", m[0], m[1], m[2], m[3]) }

// cluster takes requests, and gives back what was taken. It says no by false.
type cluster interface {
	take(owner, kind int) bool
	leave(owner, kind int)
}

// counts is what was asked and what was given, in numbers of requests.
type counts struct{ asked, given [4]int }

// slices is the share of memory slices asked for that were given, in percent.
func (c counts) slices() float64 {
	asked, given := 0, 0
	for kind, size := range sizes {
		asked += size * c.asked[kind]
		given += size * c.given[kind]
	}
	return 100 * float64(given) / float64(asked)
}

// kind is the share of requests of one kind that were given, in percent.
func (c counts) kind(k int) float64 { return 100 * float64(c.given[k]) / float64(c.asked[k]) }

func (c *counts) add(d counts) {
	for k := range sizes {
		c.asked[k] += d.asked[k]
		c.given[k] += d.given[k]
	}
}

// departure is when an owner leaves.
type departure struct {
	at          float64
	owner, kind int
}

type departures []departure

func (d departures) Len() int           { return len(d) }
func (d departures) Less(i, j int) bool { return d[i].at < d[j].at }
func (d departures) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *departures) Push(x any)        { *d = append(*d, x.(departure)) }
func (d *departures) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// churn lets requests come at random to a cluster of so many devices of 8 memory
// slices and leave after stays of mean 1. What does not fit goes away. load is
// the slices asked for at any time if all were given, as a part of all slices.
// The first warm units of time are not counted. The requests of a seed are the
// same whatever the cluster says.
func churn(c cluster, devices int, m mix, load, warm, length float64, seed uint64) counts {
	r := rand.New(rand.NewPCG(seed, 1))
	mean := 0.0
	for kind, part := range m {
		mean += part * float64(sizes[kind])
	}
	rate := load * 8 * float64(devices) / mean
	var there departures
	var n counts
	for owner, now := 0, 0.0; now < warm+length; owner++ {
		now += r.ExpFloat64() / rate
		kind, stay := m.draw(r.Float64()), r.ExpFloat64()
		for len(there) > 0 && there[0].at <= now {
			d := heap.Pop(&there).(departure)
			c.leave(d.owner, d.kind)
		}
		given := c.take(owner, kind)
		if given {
			heap.Push(&there, departure{now + stay, owner, kind})
		}
		if now >= warm {
			n.asked[kind]++
			if given {
				n.given[kind]++
			}
		}
	}
	return n
}

// draw is the kind at a point between 0 and 1.
func (m mix) draw(x float64) int {
	for kind, part := range m {
		if x < part {
			return kind
		}
		x -= part
	}
	return 0 // sums of parts may miss 1 by a rounding
}

// ledger is a node of our own: what the scheduler decides with.
type ledger struct {
	tb       testing.TB
	ledger   *sharing.Ledger
	backends sharing.Backends
	policy   policy.Policy
	pods     [4]*sharing.PodRequest
}

// node makes a node of A100s that are cut as one of the device is.
func node(tb testing.TB, devices int, cut func(sharing.Device) sharing.Device) *ledger {
	l := &ledger{tb: tb, backends: factory.New()}
	l.policy, _ = policy.Named("binpack")
	inv := &sharing.Inventory{Node: "n1"}
	for i := range devices {
		inv.Devices = append(inv.Devices, cut(sharingtest.Device(i, "A100-80", sharing.MIG)))
	}
	l.ledger = sharing.NewLedger(inv, factory.New())
	// The memory and compute that only the profile of this size has.
	for kind, ask := range [4][2]int64{{9000, 0}, {19000, 20}, {40000, 0}, {80000, 0}} {
		l.pods[kind] = sharingtest.Pod("", sharingtest.Ask("main", ask[0], sharing.Percent(ask[1])))
	}
	return l
}

func (l *ledger) take(owner, kind int) bool {
	l.tb.Helper()
	placement, refused := place.Place(l.ledger.Views(), l.pods[kind], l.backends, l.policy)
	if refused.Refused() {
		return false
	}
	if got := placement.Containers[0].Shares[0].Partition.Size; got < sizes[kind] {
		l.tb.Fatalf("a request for %d slices got %d", sizes[kind], got)
	}
	if err := l.ledger.Reserve(id(owner), placement); err != nil {
		l.tb.Fatal(err)
	}
	return true
}

func (l *ledger) leave(owner, _ int) { l.ledger.Release(id(owner)) }

func id(owner int) sharing.Owner { return sharing.Owner(strconv.Itoa(owner)) }
