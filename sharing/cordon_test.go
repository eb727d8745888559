// SPDX-License-Identifier: Apache-2.0

package sharing_test

import (
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest"
)

func TestCordonsCloseTheDevicesTheyNameUntilTheyEnd(t *testing.T) {
	const noon, second, minute, hour = "2026-01-31T12:00:00Z", "2026-01-31T12:00:01Z", "2026-01-31T12:01:00Z", "2026-01-31T13:00:00Z"
	inv := sharingtest.Node("n1", sharing.Device{ID: "a", Healthy: true}, sharing.Device{ID: "b", Healthy: true}, sharing.Device{ID: "c", Healthy: true}, sharing.Device{ID: "d"})
	cordons := sharing.Cordons{
		"a": {Reason: "fan", Until: minute}, "b": {Until: noon}, "c": {Drains: true, Until: second}, "gone": {Until: noon},
	}
	got, ends := cordons.ApplyTo(*inv, noon)
	for i, want := range []bool{false, true, false, false} {
		if d := &got.Devices[i]; d.IsInService() != want {
			t.Errorf("device %s is in service: %v; cordon %+v", d.ID, !want, d.Cordon)
		}
		if inv.Devices[i].Cordon != nil {
			t.Errorf("device %s of the inventory that was given is changed", inv.Devices[i].ID)
		}
	}
	if c := got.Devices[0].Cordon; c == nil || c.Reason != "fan" || c.Drains {
		t.Errorf("the cordon of a is %+v", c)
	}
	if ends != second {
		t.Errorf("the first cordon ends at %q", ends)
	}
	if got, ends = cordons.ApplyTo(*inv, hour); ends != "" || got.Devices[0].Cordon != nil {
		t.Errorf("after an hour: %+v, %q", got.Devices[0].Cordon, ends)
	}
	if _, ends = (sharing.Cordons{"a": {}}).ApplyTo(*inv, noon); ends != "" {
		t.Errorf("a cordon without an end ends at %q", ends)
	}
}

func TestACordonIsToldWithAllThatIsKnownOfIt(t *testing.T) {
	for want, c := range map[string]sharing.Cordon{
		"cordoned": {}, "drained": {Drains: true, Since: "1970-01-01T00:00:01Z"}, "cordoned by carol: fan": {By: "carol", Reason: "fan"},
		"drained until 1970-01-01T00:01:00Z": {Drains: true, Until: "1970-01-01T00:01:00Z"},
	} {
		if got := c.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
