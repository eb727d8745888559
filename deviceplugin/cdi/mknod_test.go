// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"deviceshare/sharing"
)

const drivers = "Character devices:\n  1 mem\n195 nvidia\n237 nvidia-caps\n\nBlock devices:\n  7 nvidia-caps-not\n  8 sd\n"

func TestTheKernelsListNumbersADriver(t *testing.T) {
	cases := map[string]struct {
		text string
		want int
	}{
		"a driver that is loaded":   {drivers, 237},
		"a driver of blocks":        {"Block devices:\n237 nvidia-caps\n", 0},
		"a driver that is not":      {"Character devices:\n195 nvidia\n", 0},
		"a number that is too high": {"Character devices:\n4096 nvidia-caps\n", 0},
		"nothing":                   {"", 0},
	}
	for name, tc := range cases {
		got, err := characterDriver([]byte(tc.text), capsDriver)
		if got != tc.want || (err == nil) != (tc.want != 0) {
			t.Errorf("%s: got %d, %v; want %d", name, got, err, tc.want)
		}
	}
}

func TestANodeThatIsMissingIsMade(t *testing.T) {
	f := partitioned(t)
	devices := filepath.Join(t.TempDir(), "devices")
	if err := os.WriteFile(devices, []byte(drivers), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(f.MIG.Root, "nvidia-cap1081")
	if err := os.Remove(missing); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mknod(missing, syscall.S_IFCHR, 1<<8|3); err != nil {
		t.Skipf("device nodes cannot be made here: %v", err)
	}
	if err := os.Remove(missing); err != nil {
		t.Fatal(err)
	}
	f.MIG.Maker = &NodeMaker{Drivers: devices}
	for range 2 {
		if _, err := f.Edits(context.Background(), []sharing.DeviceID{"MIG-1"}); err != nil {
			t.Fatal(err)
		}
	}
	var st syscall.Stat_t
	if err := syscall.Stat(missing, &st); err != nil {
		t.Fatal(err)
	}
	if want := uint64(deviceNumber(237, 1081)); st.Rdev != want || st.Mode != syscall.S_IFCHR|0o444 {
		t.Errorf("the node has number %#x and mode %#o, want %#x", st.Rdev, st.Mode, want)
	}
	if major, minor := st.Rdev>>8&0xfff, st.Rdev&0xff|st.Rdev>>12&0xfff00; major != 237 || minor != 1081 {
		t.Errorf("the kernel takes it for %d, %d", major, minor)
	}
	// systemd before 240 finds it so.
	var found syscall.Stat_t
	if err := syscall.Stat(filepath.Join(f.MIG.Root, "../char/237:1081"), &found); err != nil || found.Rdev != st.Rdev {
		t.Errorf("by its number the node is %#x (%v), want %#x", found.Rdev, err, st.Rdev)
	}
}

func TestANodeThatCannotBeMadeIsTold(t *testing.T) {
	f := partitioned(t)
	if err := os.Remove(filepath.Join(f.MIG.Root, "nvidia-cap1081")); err != nil {
		t.Fatal(err)
	}
	f.MIG.Maker = &NodeMaker{Drivers: filepath.Join(t.TempDir(), "gone")}
	if _, err := f.Edits(context.Background(), []sharing.DeviceID{"MIG-1"}); err == nil || !strings.Contains(err.Error(), "nvidia-modprobe") {
		t.Errorf("the error is %v", err)
	}
}
