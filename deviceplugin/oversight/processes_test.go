// SPDX-License-Identifier: Apache-2.0

package oversight

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// proc is a folder like /proc with processes that are in control groups.
func proc(t *testing.T, groups map[int]string) hostProcesses {
	t.Helper()
	root := t.TempDir()
	for pid, group := range groups {
		dir := filepath.Join(root, strconv.Itoa(pid))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		mounts := fmt.Sprintf("36 35 98:0 / / rw shared:1 - ext4 /dev/root rw\n37 36 0:5 / /run/volcano-vgpu/of-%d ro - tmpfs volcano-vgpu ro\n", pid)
		for name, text := range map[string]string{"cgroup": group, "mountinfo": mounts} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	h, err := newHostProcesses(root)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestTheProcessesOfAContainerAreThoseInItsControlGroup(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	h := proc(t, map[int]string{
		11: "0::/kubepods/burstable/pod1/" + id + "\n",
		12: "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope\n",
		13: "0::/../../pod1/" + id + "/init.scope\n",
		14: "2:memory:/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:" + id + "\n1:cpu:/\n",
		21: "0::/kubepods/burstable/pod1/" + id[1:] + "0\n",
		22: "0::/\n",
		23: "",
	})
	pids, err := h.pidsOf(id)
	if slices.Sort(pids); err != nil || !slices.Equal(pids, []int{11, 12, 13, 14}) {
		t.Errorf("got %v, %v", pids, err)
	}
	points, err := h.mountPoints(12)
	if err != nil || !slices.Equal(points, []string{"/", "/run/volcano-vgpu/of-12"}) {
		t.Errorf("got %q, %v", points, err)
	}
	if points, err := h.mountPoints(99); err == nil {
		t.Errorf("a process that has ended has mounts %q", points)
	}
}

func TestEveryProcessOfAContainerIsKilledAndNoOther(t *testing.T) {
	var pids []int
	var processes []*exec.Cmd
	for range 3 {
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		pids, processes = append(pids, c.Process.Pid), append(processes, c)
	}
	ended := 1<<22 + 1 // more than any process has
	h := proc(t, map[int]string{pids[0]: "0::/pod1/cc\n", pids[1]: "0::/pod1/cc\n", pids[2]: "0::/pod1/dd\n", ended: "0::/pod1/cc\n"})
	if err := h.killAll("cc"); err != nil {
		t.Fatal(err)
	}
	for _, c := range processes[:2] {
		if err := c.Wait(); err == nil {
			t.Error("a process ended by itself")
		}
	}
	if pid, err := syscall.Wait4(pids[2], nil, syscall.WNOHANG, nil); pid != 0 || err != nil {
		t.Errorf("a process of another container ended: %d, %v", pid, err)
	}
}
