// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mountinfo is what the kernel shows while a sandbox in /repo/.sandbox/state runs on a machine whose own
// /var/lib/kubelet is a disk, plus a line no reader can use.
const mountinfo = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:25 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
40 22 254:1 / /var/lib/kubelet rw - ext4 /dev/vdb rw
41 40 254:0 /repo/.sandbox/state/kubelet /var/lib/kubelet rw - ext4 /dev/vda rw
42 41 254:0 /repo/.sandbox/state/kubelet /var/lib/kubelet rw shared:7 - ext4 /dev/vda rw
43 42 0:50 / /var/lib/kubelet/pods/a\040b/volumes/token rw - tmpfs tmpfs rw
44 22 0:51 / /repo/.sandbox/state/ctd/shm rw - tmpfs shm rw
45 22 0:52 / /repo/.sandbox/state2/other rw - tmpfs shm rw
broken
`

func points(mounts []mount) []string {
	var out []string
	for _, m := range mounts {
		out = append(out, m.point)
	}
	return out
}

func TestMountsBelowADirectoryAreFoundAndNeighboursAreNot(t *testing.T) {
	mounts := parseMountinfo(mountinfo)
	if len(mounts) != 10 {
		t.Fatalf("read %d mounts, want 10 (the broken line left out)", len(mounts))
	}
	got := points(below(mounts, "/repo/.sandbox/state"))
	if want := []string{"/repo/.sandbox/state/ctd/shm"}; !slices.Equal(got, want) {
		t.Errorf("below the state directory: %v, want %v", got, want)
	}
	if got := mounts[7].point; got != "/var/lib/kubelet/pods/a b/volumes/token" {
		t.Errorf("escaped mount point reads %q", got)
	}
}

func TestOnlyTheSandboxsLayersOfTheKubeletDirectoryAreUnmounted(t *testing.T) {
	mounts := parseMountinfo(mountinfo)
	tests := map[string]struct {
		layout layout
		change [2]string
		want   int
	}{
		"our two layers and what is mounted in them, not the disk below": {layout: layout{state: "/repo/.sandbox/state"}, want: 3},
		"nothing of another sandbox":                                     {layout: layout{state: "/elsewhere/state"}, want: 0},
		"our layers when the directory was deleted under them": {
			layout: layout{state: "/repo/.sandbox/state"}, change: [2]string{"state/kubelet ", "state/kubelet//deleted "}, want: 3},
		"our layers when the repository's file system is mounted elsewhere": {layout: layout{state: "/mnt/repo/.sandbox/state"}, want: 3},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := mounts
			if tc.change[0] != "" {
				in = parseMountinfo(strings.ReplaceAll(mountinfo, tc.change[0], tc.change[1]))
			}
			if got := ownKubeletMounts(in, tc.layout); len(got) != tc.want {
				t.Errorf("%v, want %d mounts", points(got), tc.want)
			}
		})
	}
}

func TestWhatAKilledSandboxOfAnotherCloneLeftOverTheKubeletDirectoryIsFound(t *testing.T) {
	sandboxes := func(dir string) bool { return dir == "/repo/.sandbox/state" || dir == "/mnt/repo/.sandbox/state" }
	tests := map[string]struct {
		change [2]string
		states []string
		dead   int
	}{
		"its state directory, once for two layers": {states: []string{"/repo/.sandbox/state"}},
		"also where its file system is mounted elsewhere": {
			change: [2]string{"22 1 254:0 / / ", "22 1 254:0 / /mnt "}, states: []string{"/mnt/repo/.sandbox/state"}},
		"a deleted one, with what is mounted in it, and not the disk below": {
			change: [2]string{"state/kubelet ", "state/kubelet//deleted "}, dead: 3},
		"not a directory that somebody else mounted there":      {change: [2]string{"/repo/.sandbox/state/kubelet", "/data/kubelet"}},
		"not one of another file system that has the same path": {change: [2]string{"254:0 /repo", "254:9 /repo"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			text := mountinfo
			if tc.change[0] != "" {
				text = strings.ReplaceAll(text, tc.change[0], tc.change[1])
			}
			mounts := parseMountinfo(text)
			states, dead := crashed(mounts, sandboxes), deleted(mounts)
			if !slices.Equal(states, tc.states) || len(dead) != tc.dead {
				t.Errorf("state directories %q, dead mounts %q, want %q and %d", states, points(dead), tc.states, tc.dead)
			}
		})
	}
}

func TestCgroupHierarchiesOfAHybridMachine(t *testing.T) {
	got := cgroupHierarchies(parseMountinfo(mountinfo))
	want := []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestForeignKubeletIsToldFromOurs(t *testing.T) {
	const marker = "DEVICESHARE_SANDBOX=/s"
	tests := map[string]struct {
		proc proc
		want bool
	}{
		"a kubelet of the distribution":  {proc{exe: "/usr/bin/kubelet", args: []string{"/usr/bin/kubelet", "--v=2"}}, true},
		"a multi-call kubelet by name":   {proc{exe: "/usr/bin/hyperkube", args: []string{"kubelet"}}, true},
		"another sandbox's kubelet":      {proc{exe: "/x/controlplane", args: []string{"/x/controlplane", "kubelet"}, env: "DEVICESHARE_SANDBOX=/s2"}, true},
		"our kubelet":                    {proc{exe: "/x/controlplane", args: []string{"/x/controlplane", "kubelet"}, env: "A=b\x00" + marker}, false},
		"another sandbox's apiserver":    {proc{exe: "/x/controlplane", args: []string{"/x/controlplane", "apiserver"}}, false},
		"an editor with a kubelet file":  {proc{exe: "/usr/bin/vim", args: []string{"vim", "kubelet"}}, false},
		"a kubelet whose file was moved": {proc{args: []string{"/opt/kubelet"}}, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, got := foreignKubelet([]proc{tc.proc}, marker); got != tc.want {
				t.Errorf("foreign: %v, want %v", got, tc.want)
			}
		})
	}
}

func TestMarkerIsComparedAsAWhole(t *testing.T) {
	p := proc{env: "X=DEVICESHARE_SANDBOX=/s\x00DEVICESHARE_SANDBOX=/s/longer"}
	if p.startedBy("DEVICESHARE_SANDBOX=/s") {
		t.Error("a process of the sandbox /s/longer passes for one of /s")
	}
}

func TestDirectoryWithForeignFilesIsNeverEmptied(t *testing.T) {
	l := layout{repo: "/repo", state: t.TempDir()}
	precious := l.in("thesis.txt")
	if err := os.WriteFile(precious, []byte("years of work"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := claim(l); err == nil || !strings.Contains(err.Error(), l.state) {
		t.Errorf("claim said %v, want a refusal that names the directory", err)
	}
	if err := wipe(l); err != nil || !exists(precious) {
		t.Errorf("wipe said %v, file still there: %v", err, exists(precious))
	}
}

func TestClaimedDirectoryIsEmptiedButForTheLogs(t *testing.T) {
	l := layout{repo: "/repo", state: filepath.Join(t.TempDir(), "state")}
	if err := claim(l); err != nil {
		t.Fatal(err)
	}
	if err := l.makeDirs(); err != nil {
		t.Fatal(err)
	}
	if err := wipe(l); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(l.state)
	if err != nil || len(entries) != 2 || entries[0].Name() != markerFile || entries[1].Name() != "logs" {
		t.Errorf("left: %v, %v", entries, err)
	}
	if err := claim(l); err != nil {
		t.Errorf("claim again: %v", err)
	}
}

func TestOnlySocketsThatNobodyServesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	alive, err := net.Listen("unix", filepath.Join(dir, "alive"))
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	dead, err := net.Listen("unix", filepath.Join(dir, "dead"))
	if err != nil {
		t.Fatal(err)
	}
	// As SIGKILL would: the socket is closed and its file stays.
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	removeDeadSockets(dir)
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 || entries[0].Name() != "alive" {
		t.Errorf("left: %v, want the one that is served", entries)
	}
}

func TestOnlyLinksIntoTheSandboxAreRemoved(t *testing.T) {
	dir, target := t.TempDir(), "/state"
	for name, to := range map[string]string{"ours": "/state/pods/x", "theirs": "/var/log/pods/x", "alike": "/state2/x"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	removeLinksInto(dir, target)
	entries, _ := os.ReadDir(dir)
	if len(entries) != 2 || entries[0].Name() != "alike" || entries[1].Name() != "theirs" {
		t.Errorf("left: %v", entries)
	}
}

func TestSecondOwnerIsRefusedWithTheFirstOnesProcess(t *testing.T) {
	l := layout{state: filepath.Join(t.TempDir(), "state")}
	first, err := takeLock(l)
	if err != nil {
		t.Fatal(err)
	}
	_, err = takeLock(l)
	if err == nil || !strings.Contains(err.Error(), "make sandbox-down") || !strings.Contains(err.Error(), holder(l)) {
		t.Errorf("second lock: %v", err)
	}
	first.release()
	again, err := takeLock(l)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	again.release()
}
