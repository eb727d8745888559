// SPDX-License-Identifier: Apache-2.0

package occupancy

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/procfs"

	"deviceshare/sharing"
)

const (
	uid        = "0f3e1c2d-4b5a-6978-8899-aabbccddeeff"
	underlined = "0f3e1c2d_4b5a_6978_8899_aabbccddeeff"
	other      = "11111111-4b5a-6978-8899-aabbccddeeff"
	container  = "5b2c7f0d9e5b2c7f0d9e5b2c7f0d9e5b2c7f0d9e5b2c7f0d9e5b2c7f0d9e0123"
)

func TestAProcessBelongsToThePodThatItsCgroupNames(t *testing.T) {
	cases := map[string]struct {
		text string
		want sharing.Owner
	}{
		"v2, cgroupfs, best effort": {"0::/kubepods/besteffort/pod" + uid + "/" + container + "\n", uid},
		"v2, cgroupfs, guaranteed":  {"0::/kubepods/pod" + uid + "/" + container + "\n", uid},
		"v2, systemd, burstable": {
			"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + underlined + ".slice/cri-containerd-" + container + ".scope\n", uid},
		"v2, systemd, guaranteed, CRI-O": {"0::/kubepods.slice/kubepods-pod" + underlined + ".slice/crio-" + container + ".scope", uid},
		"v2, systemd slices under containerd's own": {
			"0::/system.slice/containerd.service/kubepods-burstable-pod" + underlined + ".slice:cri-containerd:" + container + "\n", uid},
		"v2, seen from a sibling's cgroup namespace": {
			"0::/../../kubepods-burstable.slice/kubepods-burstable-pod" + underlined + ".slice/cri-containerd-" + container + ".scope\n", uid},
		"v2, cgroupfs, seen from a sibling's cgroup namespace": {"0::/../../../pod" + uid + "/" + container + "\n", uid},
		"v2, kubelet with a root of its own, systemd": {
			"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + underlined +
				".slice/cri-containerd-" + container + ".scope\n", uid},
		"v2, a node that is a container, cgroupfs": {"0::/docker/" + container + "/kubelet/kubepods/burstable/pod" + uid + "/" + container + "\n", uid},
		"v1, cgroupfs": {
			"12:pids:/kubepods/burstable/pod" + uid + "/" + container + "\n11:cpu,cpuacct:/kubepods/burstable/pod" + uid + "/" + container +
				"\n1:name=systemd:/kubepods/burstable/pod" + uid + "/" + container + "\n", uid},
		"v1, systemd": {
			"9:memory:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + underlined + ".slice/docker-" + container + ".scope\n", uid},
		"v1 and v2 together": {
			"4:memory:/kubepods/pod" + uid + "/" + container + "\n0::/system.slice/containerd.service\n", uid},
		"a group that the container made below its own": {
			"0::/kubepods/pod" + uid + "/" + container + "/kubepods/pod" + other + "/x\n", uid},
		"a slice that the container made below its own": {
			"0::/kubepods.slice/kubepods-pod" + underlined + ".slice/cri-containerd-" + container + ".scope/kubepods-pod11111111.slice\n", uid},
		"two pods":                        {"5:cpu:/kubepods/pod" + uid + "\n4:memory:/kubepods/pod" + other + "\n", ""},
		"a process of the host":           {"0::/user.slice/user-0.slice/session-1.scope\n", ""},
		"a service of the host":           {"0::/system.slice/kubelet.service\n", ""},
		"podman":                          {"0::/machine.slice/libpod-" + container + ".scope\n", ""},
		"a podman pod":                    {"0::/user.slice/user-podabc.slice/libpod-" + container + ".scope\n", ""},
		"a group that is named like one":  {"0::/system.slice/pod" + uid + "\n", ""},
		"kubepods itself":                 {"0::/kubepods.slice\n", ""},
		"the root":                        {"0::/\n", ""},
		"a UID of other letters":          {"0::/kubepods/podx\"y/" + container + "\n", ""},
		"a UID that is missing":           {"0::/kubepods/pod/" + container + "\n", ""},
		"nothing":                         {"", ""},
		"no colon":                        {"kubepods/pod" + uid, ""},
		"a line that is no cgroup's line": {"x\n0::/kubepods/pod" + uid + "\n", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got, ok := podOfText(t, c.text); got != c.want || ok != (c.want != "") {
				t.Errorf("it is of %q, %v, want %q", got, ok, c.want)
			}
		})
	}
}

// podOfText is the pod of a process whose /proc/<pid>/cgroup has this text.
func podOfText(t *testing.T, text string) (sharing.Owner, bool) {
	t.Helper()
	root := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(root, "7"), 0o755), os.WriteFile(filepath.Join(root, "7", "cgroup"), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	fs, err := procfs.NewFS(root)
	if err != nil {
		t.Fatal(err)
	}
	process, err := fs.Proc(7)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := process.Cgroups()
	if err != nil {
		return "", false
	}
	return PodOf(groups)
}

func FuzzPodOf(f *testing.F) {
	f.Add("0::/kubepods/besteffort/pod" + uid + "/" + container + "\n")
	f.Add("0::/kubepods.slice/kubepods-pod" + underlined + ".slice:cri:x\n1:a:b")
	f.Fuzz(func(t *testing.T, text string) {
		if got, ok := podOfText(t, text); ok != (got != "") || len(got) > 64 {
			t.Errorf("%q, %v", got, ok)
		}
	})
}
