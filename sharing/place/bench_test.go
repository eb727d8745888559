// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"fmt"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/worth"
)

// busyNode is a node of 8 devices of 80 GiB that carry 40 shares of 8 GiB.
func busyNode(tb testing.TB) *sharing.Ledger {
	inv := &sharing.Inventory{Node: "n1"}
	for i := range 8 {
		inv.Devices = append(inv.Devices, sharing.Device{
			ID: sharing.DeviceID(fmt.Sprintf("GPU-%d", i)), Index: i, Model: "NVIDIA A100-SXM4-80GB",
			Memory: 80 * sharing.GiB, Cores: 100, MaxShares: 10, Healthy: true, Mode: sharing.HAMiCore,
		})
	}
	l := sharing.NewLedger(inv, factory.New())
	p, _ := policy.Named("spread")
	for i := range 40 {
		pod := one("main", sharing.AbsoluteMemory(8*sharing.GiB), 10)
		placement, refusals := place.Place(l.Views(), pod, factory.New(), p)
		if refusals.Refused() {
			tb.Fatal(refusals.String())
		}
		if err := l.Reserve(sharing.Owner(fmt.Sprintf("pod-%d", i)), placement); err != nil {
			tb.Fatal(err)
		}
	}
	return l
}

func one(name string, m sharing.Memory, cores sharing.Percent) *sharing.PodRequest {
	return &sharing.PodRequest{Requests: []sharing.Request{{Container: name, Count: 1, Memory: m, Cores: cores}}}
}

func BenchmarkPlace(b *testing.B) {
	views := busyNode(b).Views()
	backends := factory.New()
	binpack, _ := policy.Named("binpack")
	summary := place.Summarize(views)
	fits := one("main", sharing.AbsoluteMemory(4*sharing.GiB), 5)
	large := one("main", sharing.AbsoluteMemory(60*sharing.GiB), 5)
	four := one("main", sharing.AbsoluteMemory(4*sharing.GiB), 5)
	four.Requests[0].Count = 4
	two := one("main", sharing.AbsoluteMemory(4*sharing.GiB), 5)
	two.Requests = append(two.Requests, two.Requests[0])
	for _, c := range []struct {
		name string
		pod  *sharing.PodRequest
	}{{"fit", fits}, {"fit four devices", four}, {"fit two containers", two}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, r := place.Place(views, c.pod, backends, binpack); r.Refused() {
					b.Fatal(r.String())
				}
			}
		})
	}
	pack := learned(views)
	b.Run("fit by what is lost", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, r := place.Place(views, fits, backends, pack); r.Refused() {
				b.Fatal(r.String())
			}
		}
	})
	host := worth.Host{Views: views, Free: worth.Amounts{CPU: 64_000, Memory: 1 << 38}}
	b.Run("score by what is lost", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, fit := place.Score(host, fits, worth.Amounts{CPU: 1000, Memory: 1 << 30}, backends, pack); !fit {
				b.Fatal("does not fit")
			}
		}
	})
	b.Run("refuse with reasons", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, r := place.Place(views, large, backends, binpack); !r.Refused() {
				b.Fatal("placed")
			}
		}
	})
	b.Run("refuse by summary", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !summary.Refuses(large) {
				b.Fatal("not refused")
			}
		}
	})
	b.Run("summarize", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			summary = place.Summarize(views)
		}
	})
}
