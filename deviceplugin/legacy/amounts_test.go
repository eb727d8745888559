// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"strings"
	"testing"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestChooseHowAmountsAreOffered(t *testing.T) {
	names := []string{wire.ResourceMemory, wire.ResourceCores}
	holder := kubelet.Held{Owner: "live", Resource: wire.ResourceMemory}
	dead := kubelet.Held{Owner: "dead", Resource: wire.ResourceMemory}
	cases := map[string]struct {
		setting string
		record  kubelet.Record
		units   int64
		way     AmountSource
		why     string
	}{
		"a fresh kubelet":                          {"auto", kubelet.Record{}, 9e6, FromNodeStatus, ""},
		"a live pod of the old device plugin":      {"auto", kubelet.Record{Held: []kubelet.Held{holder}, Registered: names}, 1000, FromDevicePlugin, "1 containers hold"},
		"too much memory for the old way":          {"auto", kubelet.Record{Held: []kubelet.Held{holder}}, 60001, FromNone, "raise gpuMemoryFactor"},
		"only pods that ended":                     {"auto", kubelet.Record{Held: []kubelet.Held{dead}}, 1000, FromNodeStatus, ""},
		"the kubelet remembers the resource":       {"auto", kubelet.Record{Held: []kubelet.Held{dead}, Registered: names}, 1000, FromNone, "five minutes"},
		"only our own resource is registered":      {"auto", kubelet.Record{Registered: []string{wire.ResourceNumber}}, 1000, FromNodeStatus, ""},
		"node-status is wanted":                    {"node-status", kubelet.Record{}, 1000, FromNodeStatus, ""},
		"node-status is wanted and meets the trap": {"node-status", kubelet.Record{Held: []kubelet.Held{holder}}, 1000, FromNodeStatus, "drain the node"},
		"device-plugin is wanted":                  {"device-plugin", kubelet.Record{}, 60000, FromDevicePlugin, ""},
		"device-plugin is wanted and cannot be":    {"device-plugin", kubelet.Record{}, 60001, FromNone, "60001 kubelet devices"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			way, obstacle := ChooseAmountSource(tc.setting, tc.record, names, func(o sharing.Owner) bool { return o == "live" }, tc.units)
			if way != tc.way || (tc.why == "") != (obstacle == nil) || obstacle != nil && !strings.Contains(obstacle.Error(), tc.why) {
				t.Errorf("%s because %v, want %s with %q", way, obstacle, tc.way, tc.why)
			}
		})
	}
}
