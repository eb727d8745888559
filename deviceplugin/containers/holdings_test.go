// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/deviceplugin/containers"
	"deviceshare/deviceplugin/kubelet"
)

// listing answers for the podresources API.
type listing struct {
	slots map[string][]string // by pod
	err   error
	asked int
}

func (l *listing) Get(context.Context, types.NamespacedName) (kubelet.PodSlots, error) {
	return kubelet.PodSlots{}, errors.New("nobody asks for one pod")
}

func (l *listing) List(context.Context) ([]kubelet.PodSlots, error) {
	l.asked++
	var all []kubelet.PodSlots
	for pod, slots := range l.slots {
		all = append(all, kubelet.PodSlots{Pod: types.NamespacedName{Name: pod}, Slots: map[string][]string{"main": slots}})
	}
	return all, l.err
}

// Whichever records of the kubelet can be read: a slot of a container that has started stays
// offered.
func TestHeldSlotsAreKnownWhicheverRecordIsLost(t *testing.T) {
	b := newBench(t)
	var held []string
	var pods []*corev1.Pod
	for i := range 3 {
		p := b.pod(fmt.Sprintf("p%d", i), ask{name: "main", devices: []int{0}, mib: 1000})
		must(t, b.kubelet.Admit(p))
		_, err := b.begin(p, "main")
		must(t, err)
		pods = append(pods, p)
	}
	for _, r := range b.store.All() {
		held = append(held, r.Slots...)
	}
	text, err := os.ReadFile(b.kubelet.Checkpoint())
	must(t, err)
	require := func(what string, w *containers.HoldingsWatch, slots ...string) {
		t.Helper()
		w.Look(t.Context())
		for _, s := range slots {
			if !slices.Contains(b.agent.State().Slots(), s) {
				t.Errorf("%s: slot %s is not offered, in %v", what, s, b.agent.State().Slots())
			}
		}
	}
	watch := func(l *listing) *containers.HoldingsWatch {
		return containers.NewHoldingsWatch(b.manager, b.agent, b.pods, l)
	}
	require("all records", watch(&listing{}), held...)

	must(t, os.WriteFile(b.kubelet.Checkpoint(), []byte("{"), 0o600))
	l := &listing{slots: map[string][]string{"waiting": {"GPU-x-7"}}}
	w := watch(l)
	require("without the checkpoint", w, append(slices.Clone(held), "GPU-x-7")...)
	require("at the next look", w, append(slices.Clone(held), "GPU-x-7")...)
	if l.asked != 1 {
		t.Errorf("the kubelet was asked for its list %d times, want once", l.asked)
	}
	require("without both", watch(&listing{err: errors.New("no socket")}), held...)

	must(t, os.Remove(b.kubelet.Checkpoint()))
	require("before the kubelet's first record", watch(&listing{}))
	must(t, os.WriteFile(b.kubelet.Checkpoint(), text, 0o600))
	b.remove(pods[0])
	require("after one pod has ended", watch(&listing{}), held...) // they are canonical names
}
