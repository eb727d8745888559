// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"strings"
	"testing"

	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/deviceplugin/modes"
)

// mounted is the mounts as "host container" lines.
func mounted(mounts []*specs.Mount) string {
	var lines []string
	for _, m := range mounts {
		lines = append(lines, m.HostPath+" "+m.ContainerPath)
	}
	return strings.Join(lines, "\n")
}

func TestALibraryThatStandsInHasEveryNameOfTheDriversAndItBesideIt(t *testing.T) {
	cuda := []modes.StandIn{{Library: "libcuda.so", Host: "/state/lib/libcuda-1.so"}}
	cases := map[string]struct {
		files []string
		want  string
	}{
		"the versioned file, as NVIDIA's toolkit mounts it": {
			[]string{"/lib/libcuda.so.580.95.05"},
			"/state/lib/libcuda-1.so /lib/libcuda.so.580.95.05\n/host/libcuda.so.580.95.05 /lib/libcuda.so.driver",
		},
		"two names in one directory": {
			[]string{"/lib/libcuda.so.1", "/lib/libcuda.so.580.95.05"},
			"/state/lib/libcuda-1.so /lib/libcuda.so.1\n/host/libcuda.so.1 /lib/libcuda.so.driver\n/state/lib/libcuda-1.so /lib/libcuda.so.580.95.05",
		},
		"two directories, other libraries left to the driver's specification": {
			[]string{"/lib/libcuda.so.1", "/lib/libcudadebugger.so.1", "/compat/libcuda.so.1"},
			"/state/lib/libcuda-1.so /lib/libcuda.so.1\n/host/libcuda.so.1 /lib/libcuda.so.driver\n" +
				"/state/lib/libcuda-1.so /compat/libcuda.so.1\n/host/libcuda.so.1 /compat/libcuda.so.driver",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			base := &specs.ContainerEdits{}
			for _, f := range tc.files {
				base.Mounts = append(base.Mounts, bindMount("/host"+f[strings.LastIndex(f, "/"):], f, true))
			}
			before := mounted(base.Mounts)
			edits, err := mergeEdits(ownMounts(base), nil, modes.Injection{StandIns: cuda})
			if err != nil {
				t.Fatal(err)
			}
			if got := mounted(edits.Mounts); got != tc.want {
				t.Errorf("the mounts are\n%s\nwant\n%s", got, tc.want)
			}
			if mounted(base.Mounts) != before {
				t.Error("the driver's edits were changed")
			}
		})
	}
}

func TestWhatCannotBeStoodInForIsRefused(t *testing.T) {
	cases := map[string]struct {
		standIn modes.StandIn
		want    string
	}{
		"a library the container does not get": {modes.StandIn{Library: "libnvidia-ml.so", Host: "/x.so"}, "libnvidia-ml.so is not among"},
		"a library of a similar name":          {modes.StandIn{Library: "libcud.so", Host: "/x.so"}, "libcud.so is not among"},
		"a path that climbs":                   {modes.StandIn{Library: "libcuda.so", Host: "/x/../y.so"}, "clean absolute path"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := mergeEdits(ownMounts(driverEdits()), nil, modes.Injection{StandIns: []modes.StandIn{tc.standIn}})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q in it", err, tc.want)
			}
		})
	}
}
