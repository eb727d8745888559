// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"deviceshare/deviceplugin/containers"
	"deviceshare/deviceplugin/kubelet"
	state "deviceshare/deviceplugin/node"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// offers is what the kubelet answers.
type offers struct {
	now map[string][]string
	err error
}

func (o *offers) Offers(context.Context) (map[string][]string, error) { return o.now, o.err }

func TestADeviceThatOthersOfferTakesNoPodsUntilTheyHaveLeft(t *testing.T) {
	b := newBench(t)
	id := b.inventory().Devices[0].ID
	o := &offers{}
	w := containers.NewContestWatch(o, func() podspec.Names { return podspec.Names{Number: "example.com/shares"} }, b.agent)
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
