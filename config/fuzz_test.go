// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"reflect"
	"testing"

	"deviceshare/config"
	"deviceshare/sharing"
)

// FuzzDeviceConfig checks that any text gives a value in range or problems, never
// both.
func FuzzDeviceConfig(f *testing.F) {
	f.Add([]byte(defaultText(f)))
	f.Add([]byte("nvidia: {deviceSplitCount: 3, deviceSplitCount: 4, x: }"))
	f.Add([]byte("nvidia: &a {knownMigGeometries: [*a]}"))
	f.Add([]byte("nvidia: {gpuMemoryFactor: 1e400, 5: 6, ? [a] : b}"))
	f.Add([]byte("nvidia: {migPolicy: best-fit, knownMigGeometries: [{models: [A30], migPolicy: first-match, allowedGeometries: []}]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, problems := config.LoadDevice(text)
		if len(problems) > 0 {
			if !reflect.DeepEqual(d, config.Device{}) {
				t.Fatalf("half-read: %+v with %v", d, problems)
			}
			return
		}
		if d.SplitCount < 1 || d.MemoryFactor < 1 || d.MemoryScaling <= 0 || d.CoreScaling <= 0 || d.CountName == "" {
			t.Fatalf("out of range: %+v", d)
		}
		if p := d.Policy("NVIDIA A30"); p != sharing.FirstMatch && p != sharing.BestFit {
			t.Fatalf("out of range: %v", p)
		}
		for _, m := range d.Known {
			for _, g := range m.Geometries {
				for _, e := range g.Entries {
					if e.Count < 1 || e.Memory <= 0 || e.Profile == "" || g.Name == "" {
						t.Fatalf("out of range: %+v", g)
					}
				}
			}
		}
	})
}

// FuzzNodeConfig checks the same of the settings of single nodes.
func FuzzNodeConfig(f *testing.F) {
	f.Add([]byte(perDevice))
	f.Add([]byte(`{"nodeconfig":[{"name":"a","name":"b","devices":[null]}]}`))
	f.Add([]byte(`{"nodeconfig":{"a":[[[[]]]]},"nodeconfig":1e9}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		n, problems := config.LoadNode(text)
		if len(problems) > 0 && len(n.Nodes) > 0 {
			t.Fatalf("half-read: %+v with %v", n, problems)
		}
		for _, s := range n.Nodes {
			got := n.For(s.Name).Device(config.DefaultDevice(), "GPU-x", 0, "T4")
			if got.Mode == "" || got.MaxShares < 1 || got.MemoryScaling <= 0 || got.CoreScaling <= 0 {
				t.Fatalf("out of range: %+v", got)
			}
		}
	})
}
