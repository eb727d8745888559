// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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

func TestACordonedDeviceIsCountedAndSaysWhoDidItAndWhy(t *testing.T) {
	inv := sharing.Inventory{Node: "n1", Devices: []sharing.Device{sharingtest.Device(0, "A30", sharing.HAMiCore), sharingtest.Device(1, "A30", sharing.HAMiCore), sharingtest.Device(2, "A30", sharing.HAMiCore)}}
	inv.Devices[1].Healthy, inv.Devices[1].Reason = false, "Xid 79"
	annotations, err := wire.NodeAnnotations(inv, 1)
	if err != nil {
		t.Fatal(err)
	}
	cordons, err := wire.EncodeCordons(sharing.Cordons{
		inv.Devices[0].ID: {By: "carol", Reason: "fan\u202e"}, inv.Devices[1].ID: {Drains: true}, inv.Devices[2].ID: {Until: "1970-01-01T00:00:00Z"},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := nodeOf(t, "n1", 3)
	n.Annotations = annotations
	n.Annotations[wire.NodeCordon] = cordons
	s := stateOf(t, n)
	s.Taken = time.Unix(1, 0)
	c := view.Read(s, factory.New())
	var health []string
	for _, d := range c.Devices("n1")[0].Devices {
		health = append(health, d.Health)
	}
	if want := []string{"cordoned by carol: fan\u202e", "broken: Xid 79; drained", "ok"}; !slices.Equal(health, want) {
		t.Errorf("devices are %q, want %q", health, want)
	}
	status := c.Status()
	at := slices.IndexFunc(status.Models, func(m view.Model) bool { return m.Model == inv.Devices[0].Model })
	if m := status.Models[at]; m.Cordoned != 1 || m.Broken != 1 || m.MemoryFree != int64(inv.Devices[2].Memory) {
		t.Errorf("the model is %+v", m)
	}
	for _, text := range []string{status.Text(view.Paint{}), view.DevicesText(c.Devices("n1"), view.Paint{}, false)} {
		if !strings.Contains(text, "cordoned") || strings.Contains(text, "\u202e") {
			t.Errorf("says\n%s", text)
		}
	}
}

func TestVirtualDevicesAreShownAsSuchAndThoseWithoutALicenceAreAProblem(t *testing.T) {
	inv := sharing.Inventory{Node: "n1"}
	for i, licence := range []sharing.Licence{sharing.LicenceValid, sharing.LicenceMissing, sharing.LicenceUnknown, ""} {
		d := sharingtest.Device(i, "A30", sharing.HAMiCore)
		d.Virtual, d.Licence = i < 3, licence
		inv.Devices = append(inv.Devices, d)
	}
	annotations, err := wire.NodeAnnotations(inv, 1)
	if err != nil {
		t.Fatal(err)
	}
	n := nodeOf(t, "n1", 4)
	n.Annotations = annotations
	c := view.Read(stateOf(t, n), factory.New())
	devices := c.Devices("n1")
	wide := view.DevicesText(devices, view.Paint{}, true)
	for _, want := range []string{"GPU-0  vGPU (licence valid)", "GPU-1  vGPU (licence missing)", "GPU-2  vGPU\n"} {
		if !strings.Contains(wide, want) {
			t.Errorf("wide lacks %q:\n%s", want, wide)
		}
	}
	if n := strings.Count(wide, "vGPU"); n != 3 || strings.Contains(view.DevicesText(devices, view.Paint{}, false), "vGPU") {
		t.Errorf("vGPUs are shown %d times in\n%s", n, wide)
	}
	text, err := json.Marshal(devices[0].Devices[1:])
	if err != nil || !strings.Contains(string(text), `"virtual":true,"licence":"missing"`) || strings.Count(string(text), `"virtual"`) != 2 {
		t.Errorf("as JSON: %s (%v)", text, err)
	}
	trouble := c.Status().Trouble
	if len(trouble) != 1 || trouble[0].On != "n1" || trouble[0].What != "device 1 is a vGPU without a licence" || !strings.Contains(trouble[0].Do, "GPULicenceMissing") {
		t.Errorf("the problems are %+v", trouble)
	}
}
