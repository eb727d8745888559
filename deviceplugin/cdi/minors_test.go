// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// table is the beginning of what a driver shows, and one line from further on.
const table = "config 1\nmonitor 2\ngpu0/gi0/access 3\ngpu0/gi0/ci0/access 4\ngpu0/gi0/ci1/access 5\ngpu7/gi13/ci2/access 1081\ngpu7/gi13/access 1078\n"

func TestTheDriversTableIsReadWholeOrNotAtAll(t *testing.T) {
	got, err := parseMinors([]byte(table))
	if err != nil || len(got) != 7 || got[gpuInstance(7, 13)] != 1078 || got[computeInstance(7, 13, 2)] != 1081 || got["monitor"] != 2 {
		t.Errorf("read %v, %v", got, err)
	}
	for name, tc := range map[string]struct{ text, want string }{
		"a line without a number":          {"config 1\ngpu0/gi0/access\n", "line 2"},
		"a number that is none":            {"config one\n", "line 1"},
		"a negative number":                {"config -1\n", "line 1"},
		"a number no node can have":        {"config 1048576\n", "line 1"},
		"three words":                      {"config 1 2\n", "line 1"},
		"a capability that is there twice": {"config 1\nconfig 2\n", "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := parseMinors([]byte(tc.text)); err == nil || got != nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("read %v, %v; want an error with %q", got, err, tc.want)
			}
		})
	}
}

func FuzzMinors(f *testing.F) {
	f.Add([]byte(table))
	f.Add([]byte(""))
	f.Add([]byte("gpu0/gi0/access\t3\r\n"))
	f.Add([]byte("a 1048575"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseMinors(text)
		if err != nil && got != nil {
			t.Fatal("a table beside an error")
		}
		for name, minor := range got {
			if name == "" || minor < 0 || minor >= 1<<20 {
				t.Fatalf("%q is %d", name, minor)
			}
		}
		if again, err2 := parseMinors([]byte(strings.TrimSuffix(string(text), "\n"))); (err == nil) != (err2 == nil) || len(again) != len(got) {
			t.Fatalf("without the last line's end it reads %v, %v; before %v, %v", again, err2, got, err)
		}
	})
}

// partitioned is a machine with one MIG device on the device whose node is 7.
func partitioned(t *testing.T) *Files {
	t.Helper()
	dev := t.TempDir()
	caps := filepath.Join(dev, "nvidia-caps")
	if err := os.Mkdir(caps, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nvidia0", "nvidia7", "nvidiactl", "nvidia-caps/nvidia-cap1078", "nvidia-caps/nvidia-cap1081", "nvidia-caps/nvidia-cap3"} {
		if err := os.WriteFile(filepath.Join(dev, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	minorsFile := filepath.Join(t.TempDir(), "mig-minors")
	if err := os.WriteFile(minorsFile, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	return &Files{
		DevRoot: dev, Minors: numbered{"GPU-a": 0},
		MIG: Capabilities{Minors: minorsFile, Root: caps, Devices: located{"MIG-1": {Parent: "GPU-b", Minor: 7, GI: 13, CI: 2}}},
	}
}

// numbered is the numbers of devices' nodes.
type numbered map[sharing.DeviceID]int

func (n numbered) Minor(id sharing.DeviceID) (int, bool) { m, ok := n[id]; return m, ok }

// located is MIG devices by their UUIDs.
type located map[string]driver.MIGDevice

func (l located) MIGDevice(uuid string) (driver.MIGDevice, error) {
	m, ok := l[uuid]
	if !ok {
		return m, fmt.Errorf("there is no %s", uuid)
	}
	return m, nil
}

func TestAMIGDeviceIsItsParentsNodeAndItsOwnTwoCapabilities(t *testing.T) {
	f := partitioned(t)
	for name, tc := range map[string]struct {
		devices []sharing.DeviceID
		want    string
	}{
		"alone":                   {[]sharing.DeviceID{"MIG-1"}, "/dev/nvidia-caps/nvidia-cap1078 /dev/nvidia-caps/nvidia-cap1081 /dev/nvidia7"},
		"beside a whole device":   {[]sharing.DeviceID{"GPU-a", "MIG-1"}, "/dev/nvidia-caps/nvidia-cap1078 /dev/nvidia-caps/nvidia-cap1081 /dev/nvidia0 /dev/nvidia7"},
		"named twice, given once": {[]sharing.DeviceID{"MIG-1", "MIG-1"}, "/dev/nvidia-caps/nvidia-cap1078 /dev/nvidia-caps/nvidia-cap1081 /dev/nvidia7"},
	} {
		t.Run(name, func(t *testing.T) {
			edits, err := f.Edits(context.Background(), tc.devices)
			if err != nil {
				t.Fatal(err)
			}
			var paths []string
			for _, n := range edits.DeviceNodes {
				paths = append(paths, n.Path)
				if n.HostPath != filepath.Join(f.DevRoot, strings.TrimPrefix(n.Path, "/dev/")) {
					t.Errorf("%s comes from %s", n.Path, n.HostPath)
				}
			}
			if got := strings.Join(paths, " "); got != tc.want {
				t.Errorf("nodes are %s, want %s", got, tc.want)
			}
		})
	}
}

func TestAMIGDeviceThatCannotBeOpenedIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*Files)
		want  string
	}{
		"a MIG device of nobody": {func(f *Files) {
			f.MIG.Devices = located{}
		}, "there is no MIG-1"},
		"no table":                    {func(f *Files) { f.MIG.Minors += ".gone" }, "mig-minors.gone"},
		"a table that is damaged":     {func(f *Files) { _ = os.WriteFile(f.MIG.Minors, []byte("x"), 0o600) }, "line 1"},
		"a capability not in it":      {func(f *Files) { _ = os.WriteFile(f.MIG.Minors, []byte("config 1\n"), 0o600) }, "no capability gpu7/gi13/access"},
		"a capability without a node": {func(f *Files) { _ = os.Remove(filepath.Join(f.MIG.Root, "nvidia-cap1081")) }, "nvidia-modprobe -f /proc/driver/nvidia/capabilities/gpu7/mig/gi13/ci2/access"},
		"no node of the parent":       {func(f *Files) { _ = os.Remove(filepath.Join(f.DevRoot, "nvidia7")) }, "nvidia7"},
	} {
		t.Run(name, func(t *testing.T) {
			f := partitioned(t)
			tc.spoil(f)
			if edits, err := f.Edits(context.Background(), []sharing.DeviceID{"MIG-1"}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %+v, %v; want an error with %q", edits, err, tc.want)
			}
		})
	}
}
