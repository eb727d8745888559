// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// status is that of one container in a state.
func status(name string, state corev1.ContainerState) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: state}
}

func TestAPodHasStartedWhenAContainerWithDevicesRan(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError"}}
	again := status("main", waiting)
	again.RestartCount = 1
	for name, c := range map[string]struct {
		statuses []corev1.ContainerStatus
		want     bool
	}{
		"nothing yet":                       {nil, false},
		"it waits":                          {[]corev1.ContainerStatus{status("main", waiting)}, false},
		"it runs":                           {[]corev1.ContainerStatus{status("main", running)}, true},
		"it ended":                          {[]corev1.ContainerStatus{status("main", ended)}, true},
		"it waits to run again":             {[]corev1.ContainerStatus{again}, true},
		"one without devices runs":          {[]corev1.ContainerStatus{status("plain", running), status("main", waiting)}, false},
		"both run":                          {[]corev1.ContainerStatus{status("plain", running), status("main", running)}, true},
		"an init container without devices": {[]corev1.ContainerStatus{status("fetch", ended), status("main", waiting)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(t, ourScheduler, shareOf(0, 1000))
			pod.Status.ContainerStatuses = c.statuses
			if got := Started(pod, podspec.DefaultNames()); got != c.want {
				t.Errorf("started %v", got)
			}
		})
	}
}

// lives knows one pod.
type lives struct {
	nobody
	pod *corev1.Pod
}

func (l lives) Live() map[sharing.Owner]types.NamespacedName {
	return map[sharing.Owner]types.NamespacedName{sharing.Owner(l.pod.UID): {Namespace: l.pod.Namespace, Name: l.pod.Name}}
}

func (l lives) Pod(o sharing.Owner) (*corev1.Pod, bool) { return l.pod, o == sharing.Owner(l.pod.UID) }

// legacyPod is the pod of a scheduler and a device plugin that know the legacy text only.
func legacyPod(t *testing.T, shares ...sharing.Share) *corev1.Pod {
	t.Helper()
	pod := podOf(t, ourScheduler, shares...)
	delete(pod.Annotations, wire.PodPlacement)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status("main", corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})}
	return pod
}

func TestAPodThatAnotherDevicePluginStartedHoldsItsDevicesInAModeNobodyWroteDown(t *testing.T) {
	const first, all = "[{uid ns/p }] [] []", "[{uid ns/p }] [{uid ns/p }] [{uid ns/p }]"
	cases := map[string]struct {
		spoil func(*corev1.Pod)
		want  string
	}{
		"its decision can be read":    {func(*corev1.Pod) {}, first},
		"it cannot":                   {func(p *corev1.Pod) { p.Annotations[wire.PodAssigned] = "GPU-0,NVIDIA" }, all},
		"our text about it is broken": {func(p *corev1.Pod) { p.Annotations[wire.PodPlacement] = "{" }, all},
		"it has not started":          {func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }, "[] [] []"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inv := inventoryOf()
			pod := legacyPod(t, shareOf(0, 1000))
			c.spoil(pod)
			k := managerOn(t, &inv)
			k.cfg.Pods = lives{pod: pod}
			for _, mode := range sharing.Modes() {
				for i := range inv.Devices {
					inv.Devices[i].Mode = mode
				}
				if got := fmt.Sprint(k.Holders("GPU-0"), k.Holders("GPU-1"), k.Holders("GPU-2")); got != c.want {
					t.Errorf("when the devices are edited to %s: %s, want %s", mode, got, c.want)
				}
			}
		})
	}
}

func TestWhoHoldsADevice(t *testing.T) {
	inv := inventoryOf()
	pod := podOf(t, twoContainers(ourScheduler, shareOf(1, 1000)), shareOf(0, 1000))
	k := managerOn(t, &inv)
	k.cfg.Pods = lives{pod: pod}
	holders := func() string { return fmt.Sprint(k.Holders("GPU-0"), k.Holders("GPU-1"), k.Holders("GPU-2")) }
	if got := holders(); got != "[] [] []" {
		t.Errorf("a pod that is only placed holds %s", got)
	}
	if _, err := k.admitContainer(t.Context(), pod, mainContainer(), slotsOf(1)); err != nil {
		t.Fatal(err)
	}
	both := "[{uid ns/p hami-core}] [{uid ns/p hami-core}] []"
	if got := holders(); got != both {
		t.Errorf("a pod that has begun holds %s, want everything it was given: %s", got, both)
	}
	inv.Devices[0].Mode, inv.Devices[1].Mode = sharing.MIG, sharing.MPS
	if got := holders(); got != both {
		t.Errorf("after an edit it holds %s", got)
	}
	if err := k.cfg.Store.Forget("uid"); err != nil {
		t.Fatal(err)
	}
	if got := holders(); got != "[] [] []" {
		t.Errorf("a pod that is gone holds %s", got)
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status("main", corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})}
	if got := holders(); got != both {
		t.Errorf("a pod that runs and has no record holds %s", got)
	}
}
