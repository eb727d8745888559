// SPDX-License-Identifier: Apache-2.0

package hamicore

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/sharing"
)

// fakeHost is a temporary directory with a library in it.
type fakeHost struct {
	root, library string
	rooms         modestest.Rooms
	latest        *modestest.Crashing
}

func newHost(t *testing.T) *fakeHost {
	t.Helper()
	dir := t.TempDir()
	h := &fakeHost{root: filepath.Join(dir, "state"), library: filepath.Join(dir, "libvgpu.so")}
	for path, text := range map[string]string{h.library: "the library, first version", h.hook(): "the hook"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// hook is the file of the hook in the image.
func (h *fakeHost) hook() string { return filepath.Join(filepath.Dir(h.library), "deviceshare-hook") }

func (h *fakeHost) Preparer(at int, late bool) modes.Preparer {
	h.latest = &modestest.Crashing{Under: host.OS{}, At: at, Late: late}
	return New(h.latest, h.latest.Space(&h.rooms), h.root, h.library)
}

func (h *fakeHost) Effects() int { return h.latest.Effects() }

// Reboot takes away what is in memory.
func (h *fakeHost) Reboot() { h.rooms.Reboot() }

// State lists every file with mode and content, and every limit.
func (h *fakeHost) State() string {
	var b strings.Builder
	_ = filepath.WalkDir(h.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		info, _ := d.Info()
		rel, _ := filepath.Rel(h.root, path)
		fmt.Fprintf(&b, "%s %v", rel, info.Mode())
		if bound, ok := h.rooms.Bound(path); ok {
			fmt.Fprintf(&b, " holds %d", bound.Size)
		}
		if !d.IsDir() {
			text, _ := os.ReadFile(path)
			fmt.Fprintf(&b, " %q", text)
		}
		b.WriteString("\n")
		return nil
	})
	return b.String()
}

// claimOf is a container with a part of each of two devices.
func claimOf(o sharing.Owner, container string) modes.Claim {
	part := func(id sharing.DeviceID, memory sharing.Bytes, cores sharing.Percent) modes.ClaimedDevice {
		return modes.ClaimedDevice{
			Device: sharing.Device{ID: id, Memory: 80 * sharing.GiB},
			Share:  sharing.Share{Device: id, Mode: sharing.HAMiCore, Memory: memory, Cores: cores},
		}
	}
	return modes.Claim{
		ID: string(o) + "." + container, Owner: o, Namespace: "default", Pod: "p", Container: container, Priority: 1,
		Devices: []modes.ClaimedDevice{part("GPU-a", sharing.GiB, 30), part("GPU-b", sharing.MiBs(3000), 0)},
	}
}

func TestPreparerPassesTheSuite(t *testing.T) {
	modestest.Preparer(t, func(t *testing.T) modestest.Host { return newHost(t) }, claimOf)
}

func inject(t *testing.T, h *fakeHost, c modes.Claim) modes.Injection {
	t.Helper()
	in, err := h.Preparer(-1, false).Prepare(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// An image may preload libraries by itself: the hook puts them behind ours.
func TestTheRuntimeRunsTheHookOfTheImageForEachContainer(t *testing.T) {
	h := newHost(t)
	for _, version := range []string{"the hook", "a newer one"} {
		if err := os.WriteFile(h.hook(), []byte(version), 0o600); err != nil {
			t.Fatal(err)
		}
		in := inject(t, h, claimOf("uid", "main"))
		file := filepath.Join(h.root, "containers", "uid_main", "ld.so.preload")
		carried := filepath.Join(h.root, "hook", "deviceshare-hook")
		want := []modes.Hook{{Path: carried, Args: []string{"merge-preload", "--library=/usr/local/vgpu/libvgpu.so", "--file=" + file}}}
		if !reflect.DeepEqual(in.Hooks, want) {
			t.Errorf("the hooks are %v, want %v", in.Hooks, want)
		}
		mounted := modes.Mount{Host: file, Container: "/etc/ld.so.preload", ReadOnly: true}
		if !slices.Contains(in.Mounts, mounted) {
			t.Errorf("the file that the hook writes is not what the container sees: %v", in.Mounts)
		}
		info, err := os.Stat(carried)
		if text, readErr := os.ReadFile(carried); err != nil || readErr != nil || string(text) != version || info.Mode() != 0o755 {
			t.Errorf("on the host lies %q, %v (%v, %v)", text, info, err, readErr)
		}
	}
	whole := claimOf("uid", "whole")
	for i := range whole.Devices {
		whole.Devices[i].Share.Whole = true
	}
	if in := inject(t, h, whole); len(in.Hooks) != 0 {
		t.Errorf("a container that nothing is preloaded into has the hooks %v", in.Hooks)
	}
}

func TestTheLimitsFileSaysWhatEachDeviceMayUse(t *testing.T) {
	h := newHost(t)
	inject(t, h, claimOf("uid", "main"))
	got, err := os.ReadFile(filepath.Join(h.root, "containers", "uid_main", "limits"))
	if err != nil {
		t.Fatal(err)
	}
	want := `vgpu-limits 1
region /tmp/vgpu/vgpu.cache
policy default
priority 1
borrow /usr/local/vgpu/neighbours/` + neighbour("uid_main") + `
device 0 GPU-a memory=1073741824 cores=30
device 1 GPU-b memory=3145728000 cores=0
`
	if string(got) != want {
		t.Errorf("the file is\n%s\nwant\n%s", got, want)
	}
}

func TestTheLimitsFileSaysHowTheLibraryBehavesWhereItIsNotTheDefault(t *testing.T) {
	cases := map[string]struct {
		set  modes.Interception
		want string
	}{
		"nothing set":          {modes.Interception{}, ""},
		"contexts are free":    {modes.Interception{ContextFree: true}, "context free\n"},
		"RTLD_DEEPBIND stays":  {modes.Interception{KeepDeepbind: true}, "deepbind keep\n"},
		"memory from the host": {modes.Interception{Oversubscribe: true}, "oversubscribe on\n"},
		"all of it":            {modes.Interception{ContextFree: true, KeepDeepbind: true, Oversubscribe: true}, "context free\ndeepbind keep\noversubscribe on\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h, c := newHost(t), claimOf("uid", "main")
			c.Interception = tc.set
			env := inject(t, h, c).Env
			got, err := os.ReadFile(filepath.Join(h.root, "containers", "uid_main", "limits"))
			if err != nil {
				t.Fatal(err)
			}
			if want := "\npriority 1\n" + tc.want + "borrow "; !strings.Contains(string(got), want) {
				t.Errorf("the file is\n%s\nwant %q in it", got, want)
			}
			if told := slices.Contains(env, modes.Variable{Name: "CUDA_OVERSUBSCRIBE", Value: "true"}); told != tc.set.Oversubscribe {
				t.Errorf("old readers are told of memory from the host: %v", told)
			}
		})
	}
}

func TestLibrariesThatStandInAreNamedByTheirContent(t *testing.T) {
	h, c := newHost(t), claimOf("uid", "main")
	c.Interception.StandIn = true
	dir := filepath.Join(filepath.Dir(h.library), "standin")
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := inject(t, h, c).StandIns
	if len(got) != 2 || got[0].Library != "libcuda.so" || got[1].Library != "libnvidia-ml.so" {
		t.Fatalf("what stands in is %+v", got)
	}
	for i, name := range []string{"libcuda", "libnvidia-ml"} {
		text, err := os.ReadFile(got[i].Host)
		if err != nil || string(text) != name+".so.1" {
			t.Errorf("%s holds %q (%v)", got[i].Host, text, err)
		}
	}
	if c.Interception.StandIn = false; len(inject(t, h, c).StandIns) != 0 {
		t.Error("libraries stand in that nobody asked for")
	}
}

func TestOldReadersGetTheSameLimitsInTheEnvironment(t *testing.T) {
	c := claimOf("uid", "main")
	c.Policy, c.Priority = "force", 0
	var lines []string
	for _, v := range inject(t, newHost(t), c).Env {
		lines = append(lines, v.Name+"="+v.Value)
	}
	want := `CUDA_DEVICE_MEMORY_LIMIT_0=1024m
CUDA_DEVICE_MEMORY_LIMIT_1=3000m
CUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp/vgpu/vgpu.cache
CUDA_DEVICE_SM_LIMIT=30
CUDA_DEVICE_SM_LIMIT_0=30
CUDA_DEVICE_SM_LIMIT_1=100
CUDA_TASK_PRIORITY=0
GPU_CORE_UTILIZATION_POLICY=force`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("the environment is\n%s\nwant\n%s", got, want)
	}
}

func TestOnlyTheSharedDirectoryAndTheOwnDemandAreWritableInside(t *testing.T) {
	own := "/usr/local/vgpu/neighbours/" + neighbour("uid_main") + ".demand"
	for _, m := range inject(t, newHost(t), claimOf("uid", "main")).Mounts {
		if writable := m.Container == "/tmp/vgpu" || m.Container == own; writable == m.ReadOnly {
			t.Errorf("%s is read-only: %v", m.Container, m.ReadOnly)
		}
		if m.Container == own {
			continue
		}
		info, err := os.Stat(m.Host)
		if err != nil {
			t.Fatal(err)
		}
		if !info.IsDir() && info.Mode().Perm()&0o222 != 0 {
			t.Errorf("%s has mode %v, want that nobody can write it", m.Host, info.Mode())
		}
	}
}

func TestAWholeDeviceIsNotInterceptedAndLeavesNoFiles(t *testing.T) {
	h, c := newHost(t), claimOf("uid", "main")
	for i := range c.Devices {
		c.Devices[i].Share.Whole = true
	}
	in := inject(t, h, c)
	if len(in.Mounts) != 0 || len(in.Env) != 0 || len(in.Devices) != 2 {
		t.Errorf("the injection is %+v, want the two devices alone", in)
	}
	if state := h.State(); state != "" {
		t.Errorf("the host has\n%s", state)
	}
}

func TestAWholeDeviceBesideAPartIsUnlimitedWhileThePartIsLimited(t *testing.T) {
	h, c := newHost(t), claimOf("uid", "main")
	c.Devices[1].Share.Whole = true
	inject(t, h, c)
	got, _ := os.ReadFile(filepath.Join(h.root, "containers", "uid_main", "limits"))
	if !strings.Contains(string(got), "device 0 GPU-a memory=1073741824 cores=30\ndevice 1 GPU-b memory=0 cores=0\n") {
		t.Errorf("the file is\n%s", got)
	}
}

func TestAnUpgradeLeavesAProcessTheLibraryThatItHas(t *testing.T) {
	h := newHost(t)
	path := inject(t, h, claimOf("uid", "main")).Mounts[0].Host
	mapped, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer mapped.Close()
	if err := os.WriteFile(h.library, []byte("the library, second version"), 0o600); err != nil {
		t.Fatal(err)
	}
	inject(t, h, claimOf("uid", "main"))
	before, err := io.ReadAll(mapped)
	if err != nil || string(before) != "the library, first version" {
		t.Errorf("who has the old one reads %q (%v)", before, err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != "the library, second version" {
		t.Errorf("who starts now gets %q (%v)", after, err)
	}
}

// A file that two containers open is one that one of them can lease.
func TestContainersHaveNoFileInCommonButThoseOfTheirNeighbours(t *testing.T) {
	h := newHost(t)
	var all []os.FileInfo
	for _, c := range []modes.Claim{claimOf("uid-1", "a"), claimOf("uid-1", "b"), claimOf("uid-2", "a")} {
		for _, m := range inject(t, h, c).Mounts {
			info, err := os.Stat(m.Host)
			if err != nil {
				t.Fatal(err)
			}
			if m.Container == "/usr/local/vgpu/neighbours" {
				continue // the library does not wait there
			}
			if slices.ContainsFunc(all, func(other os.FileInfo) bool { return os.SameFile(other, info) }) {
				t.Errorf("%s of container %s of %s is another's, too", m.Container, c.Container, c.Owner)
			}
			all = append(all, info)
		}
	}
}

func TestALibraryThatACrashLeftHalfWrittenIsMadeWhole(t *testing.T) {
	h := newHost(t)
	path := inject(t, h, claimOf("uid", "main")).Mounts[0].Host
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	inject(t, h, claimOf("uid", "main"))
	if got, err := os.ReadFile(path); err != nil || string(got) != "the library, first version" {
		t.Errorf("the container gets %q (%v)", got, err)
	}
}

func TestWhatCannotBeEnforcedIsRefused(t *testing.T) {
	cases := map[string]struct {
		spoil func(*fakeHost, *modes.Claim)
		want  string
	}{
		"no library":           {func(h *fakeHost, _ *modes.Claim) { h.library += ".gone" }, "nothing would enforce"},
		"an empty library":     {func(h *fakeHost, _ *modes.Claim) { _ = os.Truncate(h.library, 0) }, "is empty"},
		"no hook":              {func(h *fakeHost, _ *modes.Claim) { _ = os.Remove(h.hook()) }, "the hook is missing"},
		"an empty hook":        {func(h *fakeHost, _ *modes.Claim) { _ = os.Truncate(h.hook(), 0) }, "is empty"},
		"nothing to stand in":  {func(_ *fakeHost, c *modes.Claim) { c.Interception.StandIn = true }, "standIn is set"},
		"a part without limit": {func(_ *fakeHost, c *modes.Claim) { c.Devices[1].Share.Memory = 0 }, "no memory limit"},
		"more than the device": {func(_ *fakeHost, c *modes.Claim) { c.Devices[0].Share.Cores = 101 }, "101%"},
		"an unknown policy":    {func(_ *fakeHost, c *modes.Claim) { c.Policy = "sometimes" }, "sometimes"},
		"a name with a slash":  {func(_ *fakeHost, c *modes.Claim) { c.Container = "a/b" }, "file name"},
		"an owner with the separator": {func(_ *fakeHost, c *modes.Claim) {
			c.Owner = "uid_main"
		}, "owner"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h, c := newHost(t), claimOf("uid", "main")
			tc.spoil(h, &c)
			_, err := h.Preparer(-1, false).Prepare(context.Background(), c)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestOwnersListsWhoHasSomething(t *testing.T) {
	h := newHost(t)
	inject(t, h, claimOf("uid-1", "a"))
	inject(t, h, claimOf("uid-2", "b"))
	owners, err := New(host.OS{}, &h.rooms, h.root, h.library).Owners()
	if err != nil || fmt.Sprint(owners) != "[uid-1 uid-2]" {
		t.Errorf("owners are %v, %v", owners, err)
	}
}
