// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"slices"
	"strings"
	"testing"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// otherOffers reads "nvidia.com/gpu=GPU-0,GPU-1::2 driver/gpu.nvidia.com=GPU-0".
func otherOffers(words []string) (offers []node.OtherOffer) {
	for _, word := range words {
		name, ids, _ := strings.Cut(word, "=")
		offer := node.OtherOffer{Resource: name, IDs: strings.Split(ids, ",")}
		if driver, is := strings.CutPrefix(name, "driver/"); is {
			offer.Resource, offer.Driver = "", driver
		}
		offers = append(offers, offer)
	}
	return offers
}

// Names as the device plugins of the field give them.
func TestADeviceIsFoundInTheNamesThatOthersGiveIt(t *testing.T) {
	const mine, other = "GPU-8f5c0a3e-1d2b-4c6f-9a7e-0123456789ab", "GPU-8f5c0a3e-1d2b-4c6f-9a7e-0123456789ac"
	for name, c := range map[string]struct {
		id   string
		want bool
	}{
		"NVIDIA's":                               {mine, true},
		"NVIDIA's, shared by time":               {mine + "::3", true},
		"HAMi's, and Volcano's own":              {mine + "-7", true},
		"a partition of an old driver":           {"MIG-" + mine + "/1/0", true},
		"another device":                         {other, false},
		"by number, as GKE and the vgpu-manager": {"nvidia0", false},
		"a partition by its own UUID":            {"MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", false},
		"nothing":                                {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := node.New(node.Config{Node: "n1", Powers: node.Powers{Serves: sharing.Modes()}})
			for _, e := range []node.Event{
				node.Scanned{Devices: []node.Facts{{UUID: mine, Memory: sharing.GiB}}},
				node.Configured{Settings: node.Settings{Offers: modes{byDefault: sharing.HAMiCore}}},
				node.OfferedByOthers{Offers: []node.OtherOffer{{Resource: "nvidia.com/gpu", IDs: []string{"x", c.id}}}},
			} {
				s = node.Reduce(s, e)
			}
			condition, _ := s.Condition(mine)
			if got := condition.Kind == node.Interrupted && strings.Contains(condition.Detail, "nvidia.com/gpu"); got != c.want {
				t.Errorf("%v", condition)
			}
		})
	}
}

// Who lets both offer a device is told all the same.
func TestAContestedDeviceMayBeServed(t *testing.T) {
	s := node.New(node.Config{Node: "n1", Powers: node.Powers{Serves: sharing.Modes()}, ServesContested: true})
	for _, e := range []node.Event{
		node.Scanned{Devices: []node.Facts{{UUID: "GPU-0", Memory: sharing.GiB}}},
		node.Configured{Settings: node.Settings{Offers: modes{byDefault: sharing.HAMiCore}}},
	} {
		s = node.Reduce(s, e)
	}
	after := node.Reduce(s, node.OfferedByOthers{Offers: otherOffers([]string{"nvidia.com/gpu=GPU-0"})})
	if c, _ := after.Condition("GPU-0"); c.Kind != node.Ready {
		t.Errorf("%v", c)
	}
	told := node.Diff(s, after)
	if !slices.ContainsFunc(told, func(n node.Notice) bool {
		return n.Kind == node.DeviceContested && strings.HasSuffix(n.Detail, " as nvidia.com/gpu")
	}) {
		t.Errorf("told %v", told)
	}
}
