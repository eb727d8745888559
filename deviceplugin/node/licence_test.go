// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

const hour, day = int64(3600), int64(24 * 3600)

// guestNode is a node with one vGPU that is offered.
func guestNode(t *testing.T) node.State {
	t.Helper()
	s := node.New(node.Config{Node: "n1", Powers: node.Powers{Serves: sharing.Modes()}})
	s = reduce(t, s, node.Configured{Settings: node.Settings{Offers: modes{byDefault: sharing.HAMiCore}}})
	return reduce(t, s, node.Scanned{Devices: []node.Facts{card("GPU-0", 0, "vGPU", "1")}})
}

// A driver renews what a server lends after a part of its time: the server's default is 15 percent.
func TestALicenceThatIsRenewedInTimeIsNeverToldOf(t *testing.T) {
	for _, lasts := range []int64{10 * 60, hour, day, 7 * day, 90 * day} {
		for _, after := range []float64{0.15, 0.5, 0.74} {
			t.Run(fmt.Sprint(lasts, " seconds, renewed after ", after), func(t *testing.T) {
				s, now := guestNode(t), 1_700_000_000+lasts/3
				end := int64(1_700_000_000) + lasts
				for range 500 {
					next := reduce(t, s, node.LicenceRead{Device: "GPU-0", Licence: node.Licence{Valid: true, Ends: end}, Now: now})
					if told := node.Diff(s, next); len(told) > 0 {
						t.Fatalf("%d seconds before its end: %+v", end-now, told)
					}
					s, now = next, now+max(lasts/50, 5)
					if float64(end-now) < float64(lasts)*(1-after) {
						end = now + lasts
					}
				}
			})
		}
	}
}

func TestALicenceThatIsNotRenewedIsToldOfOnceBeforeItsEnd(t *testing.T) {
	for _, c := range []struct{ lasts, before int64 }{{365 * day, 7 * day}, {28 * day, 7 * day}, {8 * day, 2 * day}, {day, 6 * hour}, {20 * 60, 5 * 60}} {
		s, begin := guestNode(t), int64(1_700_000_000)
		end, toldAt := begin+c.lasts, []int64(nil)
		for now := begin; now < end; now += c.lasts / 1000 {
			next := reduce(t, s, node.LicenceRead{Device: "GPU-0", Licence: node.Licence{Valid: true, Ends: end}, Now: now})
			for _, n := range node.Diff(s, next) {
				if toldAt = append(toldAt, end-now); n.Kind != node.DeviceUnlicensed || n.Ends != end || !strings.Contains(n.Detail, "ends soon") {
					t.Errorf("told %+v", n)
				}
			}
			if d := next.Inventory().Devices[0]; !d.Healthy || d.Licence != sharing.LicenceValid {
				t.Fatalf("before its end: %+v", d)
			}
			s = next
		}
		if len(toldAt) != 1 || toldAt[0] >= c.before || toldAt[0] < c.before-2*c.lasts/1000 {
			t.Errorf("one that lasts %d seconds is told of %v seconds before its end, want once, %d", c.lasts, toldAt, c.before)
		}
	}
}

// Random answers: what was told last is how it is, nothing is told twice, pods come all the same,
// and a card of the machine itself has no licence.
func TestWhatIsToldOfALicenceIsHowItIs(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	told, times := map[bool]int{}, 0
	for range 300 {
		s, now, last := guestNode(t), int64(1_700_000_000), ""
		s = reduce(t, s, node.Scanned{Devices: []node.Facts{card("GPU-0", 0, "vGPU", "1"), card("GPU-1", 1, "T4", "2")}})
		for range 40 {
			now += r.Int64N(3 * day)
			said := node.Licence{Valid: r.IntN(3) > 0, Ends: []int64{0, now + r.Int64N(40*day), now - 5}[r.IntN(3)]}
			next := reduce(t, s, node.LicenceRead{Device: []sharing.DeviceID{"GPU-0", "GPU-0", "GPU-1", "GPU-9"}[r.IntN(4)], Licence: said, Now: now})
			for _, n := range node.Diff(s, next) {
				if n.Device != "GPU-0" || n.Detail == last || (n.Kind == node.DeviceUnlicensed) != (n.Detail != "") {
					t.Fatalf("told %+v after %q", n, last)
				}
				last = n.Detail
				told[last == ""]++
			}
			s, times = next, times+1
			inv := s.Inventory()
			if guest := inv.Devices[0]; !guest.Healthy || !guest.Virtual || (guest.Licence == sharing.LicenceMissing) != (last == "it has no licence") {
				t.Fatalf("told %q, published %+v", last, guest)
			}
			if own := inv.Devices[1]; own.Virtual || own.Licence != sharing.LicenceUnknown {
				t.Fatalf("a card of the machine itself: %+v", own)
			}
		}
	}
	if told[true] < times/50 || told[false] < times/50 {
		t.Errorf("%v in %d answers: this shows little", told, times)
	}
}

// A device that is another one after a change of its driver has no licence of the old one.
func TestALicenceIsOfAVirtualDeviceOnly(t *testing.T) {
	s := reduce(t, guestNode(t), node.LicenceRead{Device: "GPU-0", Now: 1})
	if d := s.Inventory().Devices[0]; d.Licence != sharing.LicenceMissing {
		t.Fatalf("%+v", d)
	}
	s = reduce(t, s, node.Scanned{Devices: []node.Facts{card("GPU-0", 0, "T4", "1")}})
	if d := s.Inventory().Devices[0]; d.Licence != sharing.LicenceUnknown || d.Virtual {
		t.Errorf("%+v", d)
	}
}
