// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"deviceshare/deviceplugin/containers"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/kubelet"
	state "deviceshare/deviceplugin/node"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// offers is what the kubelet answers.
type offers struct {
	now map[string][]string
	err error
}

func (o *offers) Offers(context.Context) (map[string][]string, error) { return o.now, o.err }

func (o *offers) WaitForSync(context.Context) bool { return o.err == nil }

// newContestWatch looks at a bench through what the kubelet and ResourceSlices answer.
func newContestWatch(b *bench, kubelet, drivers *offers) *containers.ContestWatch {
	return containers.NewContestWatch(containers.ContestConfig{
		Kubelet: kubelet, Slices: drivers, Devices: b.driver, Agent: b.agent,
		Names: func() podspec.Names { return podspec.Names{Number: "example.com/shares"} },
	})
}

// expectContest wants a device to take no pods because of a text, or "" to take some.
func (b *bench) expectContest(says string, id sharing.DeviceID, want string) {
	b.t.Helper()
	c, _ := b.agent.State().Condition(id)
	if (c.Kind == state.Interrupted) != (want != "") || !strings.Contains(c.Detail, want) {
		b.t.Errorf("%s: %v, want %q", says, c, want)
	}
}

func TestADeviceThatOthersOfferTakesNoPodsUntilTheyHaveLeft(t *testing.T) {
	b := newBench(t)
	id := b.inventory().Devices[0].ID
	o := &offers{}
	w := newContestWatch(b, o, &offers{})
	for _, step := range []struct {
		says string
		offers
		contested bool
	}{
		{"nobody offers anything", offers{}, false},
		{"ours, under the name that is configured", offers{now: map[string][]string{"example.com/shares": {string(id)}}}, false},
		{"the plugin that was here before, under our usual name", offers{now: map[string][]string{wire.ResourceNumber: {string(id) + "-1"}}}, false},
		{"another one", offers{now: map[string][]string{"nvidia.com/gpu": {"GPU-x", string(id)}}}, true},
		{"it is not known any more", offers{err: errors.New("no socket")}, true},
		{"other devices only", offers{now: map[string][]string{"nvidia.com/gpu": {"GPU-x"}}}, false},
		{"another one again", offers{now: map[string][]string{"nvidia.com/gpu.shared": {string(id) + "::0"}}}, true},
		{"it has left", offers{now: map[string][]string{"nvidia.com/gpu.shared": nil}}, false},
	} {
		*o = step.offers
		w.Look(t.Context())
		if c, _ := b.agent.State().Condition(id); (c.Kind == state.Interrupted) != step.contested {
			t.Errorf("%s: %v", step.says, c)
		}
	}
}

// Each of the two is asked by itself: what one cannot say leaves what the other says.
func TestADeviceThatADRADriverOffersTakesNoPodsUntilItHasLeft(t *testing.T) {
	b := newBench(t)
	id := b.inventory().Devices[0].ID
	kubelet, drivers := &offers{err: errors.New("no socket")}, &offers{}
	w := newContestWatch(b, kubelet, drivers)
	driver := map[string][]string{"gpu.nvidia.com": {"GPU-x", string(id)}}
	for _, step := range []struct {
		says             string
		kubelet, drivers offers
		want             string
	}{
		{"the kubelet does not say", offers{err: errors.New("no socket")}, offers{now: driver}, "DRA driver gpu.nvidia.com offers it, too, in a ResourceSlice"},
		{"both say", offers{now: map[string][]string{"nvidia.com/gpu": {string(id)}}}, offers{now: driver}, "as nvidia.com/gpu"},
		{"the API server does not say any more", offers{}, offers{err: errors.New("not read yet")}, "DRA driver gpu.nvidia.com"},
		{"nobody says anything", offers{err: errors.New("no socket")}, offers{err: errors.New("not read yet")}, "DRA driver gpu.nvidia.com"},
		{"the driver has left", offers{err: errors.New("no socket")}, offers{}, ""},
	} {
		*kubelet, *drivers = step.kubelet, step.drivers
		w.Look(t.Context())
		b.expectContest(step.says, id, step.want)
	}
}

// A partition is named by a UUID of its own.
func TestADeviceOfWhichOthersOfferAPartitionTakesNoPods(t *testing.T) {
	b := newBenchIn(t, host.OS{}, sharing.MIG)
	id := b.device(0)
	gi, err := b.driver.CreateGPUInstance(id, "1g.10gb", 4)
	must(t, err)
	partition, err := b.driver.CreateComputeInstance(id, gi)
	must(t, err)
	uuid := partition.UUID
	kubelet, drivers := &offers{}, &offers{}
	w := newContestWatch(b, kubelet, drivers)
	for _, c := range []struct {
		says             string
		kubelet, drivers map[string][]string
		want             string
	}{
		{"a plugin, shared by time", map[string][]string{"nvidia.com/mig-1g.10gb.shared": {uuid + "::1"}}, nil, "as nvidia.com/mig-1g.10gb.shared"},
		{"nobody", nil, nil, ""},
		{"a DRA driver", nil, map[string][]string{"gpu.nvidia.com": {uuid}}, "DRA driver gpu.nvidia.com"},
		{"a partition that is not there", map[string][]string{"nvidia.com/mig-1g.10gb": {"MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "MIG-", "MIG-1"}}, nil, ""},
	} {
		kubelet.now, drivers.now = c.kubelet, c.drivers
		w.Look(t.Context())
		b.expectContest(c.says, id, c.want)
	}
}

func TestTheKubeletSaysWhatOthersOffer(t *testing.T) {
	b := newBench(t)
	resources, err := kubelet.DialPodResources(b.kubelet.PodResources(), offer{b})
	must(t, err)
	t.Cleanup(func() { _ = resources.Close() })
	b.kubelet.Offer("nvidia.com/gpu", "GPU-b", "GPU-a")
	got, err := resources.Offers(t.Context())
	if err != nil || !slices.Equal(got["nvidia.com/gpu"], []string{"GPU-a", "GPU-b"}) || len(got["amd.com/gpu"]) > 0 {
		t.Errorf("offers %v, %v", got, err)
	}
	b.kubelet.Offer("nvidia.com/gpu")
	if got, err = resources.Offers(t.Context()); err != nil || len(got["nvidia.com/gpu"]) > 0 {
		t.Errorf("offers %v after that plugin has left, %v", got, err)
	}
}
