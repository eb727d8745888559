// SPDX-License-Identifier: Apache-2.0

package occupancy

import (
	"testing"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/sharing"
)

// Ids that a runtime gave to containers.
const (
	mainID  = "5b2c7f0d9e5b2c7f0d9e5b2c7f0d9e5b2c7f0d9e5b2c7f0d9e5b2c7f0d9e0123"
	sideID  = "6b2c7f0d9e5b2c7f0d9e5b2c7f0d9e5b2c7f0d9e5b2c7f0d9e5b2c7f0d9e0123"
	freshID = "7b2c7f0d9e5b2c7f0d9e5b2c7f0d9e5b2c7f0d9e5b2c7f0d9e5b2c7f0d9e0123"
)

func TestWhoseAProcessIs(t *testing.T) {
	both := Container{Name: "side", ID: sideID, HasShare: true}
	cases := map[string]struct {
		containers []Container
		path       string
		want       Occupant
	}{
		"its container has a share":            {nil, "/kubepods/pod" + uid + "/" + mainID, Occupant{Holder, uid, "main"}},
		"its pod's other container has none":   {nil, "/kubepods/pod" + uid + "/" + sideID, Occupant{Stranger, uid, "side"}},
		"its container is not known yet":       {nil, "/kubepods/pod" + uid + "/" + freshID, Occupant{Undecided, uid, "main"}},
		"it may be either of two containers":   {[]Container{both}, "/kubepods/pod" + uid + "/" + freshID, Occupant{Undecided, uid, ""}},
		"its pod has nothing of the device":    {nil, "/kubepods/pod" + other + "/" + freshID, Occupant{Stranger, other, ""}},
		"it is a program of the host":          {nil, "/system.slice/xorg.service", Occupant{Host, "", ""}},
		"it is a program of another runtime":   {nil, "/docker/" + mainID, Occupant{Host, "", ""}},
		"another pod's, named after container": {nil, "/kubepods/pod" + other + "/" + mainID, Occupant{Stranger, other, ""}},
		"systemd":                              {nil, "/kubepods.slice/kubepods-pod" + underlined + ".slice/cri-containerd-" + mainID + ".scope", Occupant{Holder, uid, "main"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			containers := []Container{{"main", mainID, true}, {"side", sideID, false}, {"later", "", false}}
			if c.containers != nil {
				containers = append(containers[:1:1], c.containers...)
			}
			if got := (Pods{uid: containers}).Of([]procfs.Cgroup{{Path: c.path}}); got != c.want {
				t.Errorf("it is %+v, want %+v", got, c.want)
			}
		})
	}
}

// known are pods of the node.
type known map[sharing.Owner]*corev1.Pod

func (k known) Pod(owner sharing.Owner) (*corev1.Pod, bool) { pod, ok := k[owner]; return pod, ok }

func TestWhichContainersHaveSharesOfWhichDevice(t *testing.T) {
	status := func(name, id string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, ContainerID: id}
	}
	pod := &corev1.Pod{Status: corev1.PodStatus{
		InitContainerStatuses:      []corev1.ContainerStatus{status("setup", "containerd://1")},
		ContainerStatuses:          []corev1.ContainerStatus{status("main", "cri-o://2"), status("side", "")},
		EphemeralContainerStatuses: []corev1.ContainerStatus{status("debug", "containerd://3")},
	}}
	share := func(id sharing.DeviceID) checkpoint.DeviceAndShare { return checkpoint.DeviceAndShare{Device: id} }
	records := []checkpoint.Record{
		{Owner: uid, Container: "main", Devices: []checkpoint.DeviceAndShare{share("GPU-a"), share("GPU-b")}},
		{Owner: uid, Container: "side", Devices: []checkpoint.DeviceAndShare{share("GPU-b")}},
		{Owner: other, Container: "main", Devices: []checkpoint.DeviceAndShare{share("GPU-b")}},
	}
	got := ByDevice(records, known{uid: pod})
	want := map[sharing.DeviceID]Pods{
		"GPU-a": {uid: {{"setup", "1", false}, {"main", "2", true}, {"side", "", false}, {"debug", "3", false}}},
		"GPU-b": {
			uid:   {{"setup", "1", false}, {"main", "2", true}, {"side", "", true}, {"debug", "3", false}},
			other: {{"main", "", true}}, // it has ended, and is not released yet
		},
	}
	if len(got) != len(want) {
		t.Fatalf("devices are %v", got)
	}
	for id, pods := range want {
		if len(got[id]) != len(pods) {
			t.Errorf("device %s: %v", id, got[id])
		}
		for owner, containers := range pods {
			for i, c := range containers {
				if len(got[id][owner]) != len(containers) || got[id][owner][i] != c {
					t.Errorf("device %s, pod %s: %+v, want %+v", id, owner, got[id][owner], containers)
				}
			}
		}
	}
}

func TestEveryKindHasAName(t *testing.T) {
	seen := map[string]bool{}
	for k := Holder; k <= Host; k++ {
		if name := k.String(); name == "unknown" || seen[name] {
			t.Errorf("kind %d is called %q", k, name)
		}
		seen[k.String()] = true
	}
}
