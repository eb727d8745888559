// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/wire"
	"deviceshare/view"
)

func TestEventsThatTheStatusNamesAreExplained(t *testing.T) {
	explained, err := os.ReadFile("../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	broken := sharingtest.Device(0, "A30", sharing.HAMiCore)
	broken.Healthy, broken.Reason = false, "Xid 79"
	annotations, err := wire.NodeAnnotations(sharing.Inventory{Node: "broken", Devices: []sharing.Device{broken}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	ill := nodeOf(t, "broken", 1)
	ill.Annotations = annotations
	s := stateOf(t, ill)
	text := "- nonsense"
	s.DeviceConfig = &text
	for _, hash := range []string{"0123456789abcdef", "fedcba9876543210"} {
		n := nodeOf(t, "configured-"+hash, 1)
		if n.Annotations[wire.NodeConfig], err = wire.EncodeConfig(wire.ConfigVersions{Device: hash, Node: hash, Geometry: hash}); err != nil {
			t.Fatal(err)
		}
		s.Add(n)
	}
	status := view.Read(s, factory.New()).Status()
	event := regexp.MustCompile(`\bevent ([A-Za-z]+)`)
	named := 0
	for _, trouble := range status.Trouble {
		for _, m := range event.FindAllStringSubmatch(trouble.Do, -1) {
			named++
			if !strings.Contains(string(explained), "| `"+m[1]+"`") {
				t.Errorf("%s: %q names the event %s, which docs/events.md does not explain", trouble.On, trouble.Do, m[1])
			}
		}
	}
	if named < 3 {
		t.Errorf("%d events are named, want three kinds at least: %+v", named, status.Trouble)
	}
}
