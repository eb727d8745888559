// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deviceshare/deviceplugin/host"
	"deviceshare/sharing"
)

func TestDriverFilesAreReadStrictly(t *testing.T) {
	cases := map[string]struct {
		text string
		want DriverFile
		bad  bool
	}{
		"read-only by default":      {"/a/lib.so:/usr/lib/lib.so", DriverFile{Host: "/a/lib.so", Container: "/usr/lib/lib.so"}, false},
		"read-only when it is said": {"/a:/b:ro", DriverFile{Host: "/a", Container: "/b"}, false},
		"writable":                  {"/a:/b:rw", DriverFile{Host: "/a", Container: "/b", Writable: true}, false},
		"no container path":         {"/a", DriverFile{}, true},
		"a relative path":           {"a:/b", DriverFile{}, true},
		"an unknown option":         {"/a:/b:exec", DriverFile{}, true},
		"too many parts":            {"/a:/b:rw:ro", DriverFile{}, true},
		"an empty text":             {"", DriverFile{}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseDriverFile(tc.text)
			if got != tc.want || (err != nil) != tc.bad {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestFilesGiveNodesInOrderAndOnlyControlNodesThatExist(t *testing.T) {
	dev := t.TempDir()
	for _, name := range []string{"nvidia0", "nvidia3", "nvidiactl"} {
		if err := os.WriteFile(filepath.Join(dev, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := &Files{
		DevRoot: dev, Driver: []DriverFile{{Host: "/x", Container: "/y"}, {Host: "/s", Container: "/run/s", Writable: true}},
		Minors: numbered{"GPU-a": 3, "GPU-b": 0, "GPU-c": 7},
	}
	edits, err := f.Edits(context.Background(), []sharing.DeviceID{"GPU-a", "GPU-b"})
	if err != nil {
		t.Fatal(err)
	}
	common, err := f.Common(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, n := range slices.Concat(edits.DeviceNodes, common.DeviceNodes) {
		paths = append(paths, n.Path)
		if n.HostPath != filepath.Join(dev, filepath.Base(n.Path)) {
			t.Errorf("%s comes from %s", n.Path, n.HostPath)
		}
	}
	if got := strings.Join(paths, " "); got != "/dev/nvidia0 /dev/nvidia3 /dev/nvidiactl" {
		t.Errorf("nodes are %s", got)
	}
	if len(common.Mounts) != 2 || common.Mounts[0].Options[0] != "ro" || common.Mounts[1].Options[0] != "rw" || len(edits.Mounts) > 0 {
		t.Errorf("mounts are %+v, of each container %+v", common.Mounts, edits.Mounts)
	}
	for name, id := range map[string]sharing.DeviceID{"a device whose node is missing": "GPU-c", "a device of another machine": "GPU-z"} {
		if _, err := f.Edits(context.Background(), []sharing.DeviceID{id}); err == nil || !strings.Contains(err.Error(), string(id)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheDirectoryWritesOnceAndForgetsWithoutComplaint(t *testing.T) {
	d := &Directory{Files: host.OS{}, Path: filepath.Join(t.TempDir(), "cdi")}
	for i, want := range []bool{true, false} {
		if changed, err := d.Write("a", []byte("driver"), []byte("text")); err != nil || changed != want {
			t.Errorf("write %d: changed %v, %v", i, changed, err)
		}
	}
	if err := os.WriteFile(filepath.Join(d.Path, "nvidia.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if ids, err := d.IDs(); err != nil || len(ids) != 1 || ids[0] != "a" {
		t.Errorf("ids are %v, %v", ids, err)
	}
	for range 2 {
		if err := d.Remove("a"); err != nil {
			t.Error(err)
		}
	}
	if ids, _ := d.IDs(); len(ids) != 0 {
		t.Errorf("%v is left", ids)
	}
}

func TestWhatAKilledProcessLeftIsFoundAndRemoved(t *testing.T) {
	d := &Directory{Files: host.OS{}, Path: t.TempDir()}
	for _, name := range []string{".volcano.sh-vgpu-a.json.tmp-123", ".nvidia.yaml.tmp-1", ".volcano.sh-vgpu-.json.tmp-1"} {
		if err := os.WriteFile(filepath.Join(d.Path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if ids, err := d.IDs(); err != nil || len(ids) != 1 || ids[0] != "a" {
		t.Errorf("ids are %v, %v", ids, err)
	}
	if err := d.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if names, _ := os.ReadDir(d.Path); len(names) != 2 {
		t.Errorf("%d files are left, want those of others", len(names))
	}
}

func TestNamesOfOthersAreNotOurs(t *testing.T) {
	for _, name := range []string{"nvidia.com/gpu=0", "volcano.sh/other=a", "volcano.sh/vgpu", "volcano.sh/vgpu=", "", "=", "volcano.sh/vgpu=a/b"} {
		if id, ours := ID(name); ours {
			t.Errorf("%q was taken for allocation %q", name, id)
		}
	}
	for _, file := range []string{"volcano.sh-vgpu-.json", "volcano.sh-vgpu-a.yaml", "nvidia.json", "volcano.sh-vgpu-a b.json"} {
		if id, ours := FileID(file); ours {
			t.Errorf("%q was taken for allocation %q", file, id)
		}
	}
}
