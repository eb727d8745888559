// SPDX-License-Identifier: Apache-2.0

package compatibility_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"gopkg.in/yaml.v2"
	deviceconfig "volcano.sh/volcano/pkg/scheduler/api/devices/config"
	"volcano.sh/volcano/pkg/scheduler/api/devices/nvidia/vgpu"

	"deviceshare/config"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestBothSidesMeanTheSameKeys(t *testing.T) {
	for ours, theirs := range map[string]string{
		wire.ResourceNumber: deviceconfig.VolcanoVGPUNumber, wire.ResourceMemory: deviceconfig.VolcanoVGPUMemory,
		wire.ResourceCores: deviceconfig.VolcanoVGPUCores, wire.ResourcePercentage: deviceconfig.VolcanoVGPUMemoryPercentage,
		wire.NodeRegister: deviceconfig.VolcanoVGPURegister, wire.NodeHandshake: deviceconfig.VolcanoVGPUHandshake,
		wire.NodeLock: vgpu.DeviceName, wire.PodNode: vgpu.AssignedNodeAnnotations, wire.PodTime: vgpu.AssignedTimeAnnotations,
		wire.PodAssigned: vgpu.AssignedIDsAnnotations, wire.PodToAllocate: vgpu.AssignedIDsToAllocateAnnotations,
		wire.PodBindPhase: vgpu.DeviceBindPhase, wire.PodBindTime: vgpu.BindTimeAnnotations,
		wire.UserMode: vgpu.GPUModeAnnotation, wire.UserUseModels: vgpu.GPUInUse, wire.UserNotModels: vgpu.GPUNoUse,
	} {
		if ours != theirs {
			t.Errorf("we say %s, Volcano says %s", ours, theirs)
		}
	}
}

func TestVolcanoReadsTheDevicesOfOurNode(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(*sharing.Inventory)
		factor int64
	}{
		"several devices with sparse indexes": {func(*sharing.Inventory) {}, 1},
		"memory in units of a factor":         {func(*sharing.Inventory) {}, 100},
		"different devices": {func(inv *sharing.Inventory) {
			inv.Devices[1].Memory, inv.Devices[1].Model, inv.Devices[1].MaxShares = 15360*sharing.MiB, "Tesla T4", 3
		}, 1},
		"a model with the separators of the grammar": {func(inv *sharing.Inventory) { inv.Devices[0].Model = "A,B:C;D" }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inv := inventory(sharing.HAMiCore, "GPU-a", "GPU-b", "GPU-c")
			c.edit(&inv)
			gs := volcanoReads(t, inv, c.factor)
			if len(gs.Device) != len(inv.Devices) || gs.Mode != "hami-core" {
				t.Fatalf("Volcano sees %d devices in mode %s", len(gs.Device), gs.Mode)
			}
			for i, d := range inv.Devices {
				g := gs.Device[i]
				if g.UUID != string(d.ID) || sharing.MiBs(int64(g.Memory)*c.factor) != d.Memory ||
					int(g.Number) != d.MaxShares || g.Health != d.Healthy || !strings.HasPrefix(g.Type, "NVIDIA-") {
					t.Errorf("Volcano sees %+v, the node has %+v", *g, d)
				}
			}
		})
	}
}

func TestVolcanoPlacesNothingOnAnUnhealthyDevice(t *testing.T) {
	inv := inventory(sharing.HAMiCore, "GPU-a", "GPU-b")
	inv.Devices[1].Healthy = false
	gs := volcanoReads(t, inv, 1)
	a := volcanoDecides(t, gs, pod("1", container("main", 1, 100, -1)))
	if got := a[wire.PodAssigned]; got != "GPU-a,NVIDIA,100,0:" {
		t.Errorf("Volcano gave %s", got)
	}
	vgpu.VGPUEnable = true
	if code, _, err := gs.FilterNode(pod("2", container("main", 2, 100, -1)), ""); err == nil {
		t.Errorf("Volcano accepts two devices of a node with one healthy device: %d", code)
	}
}

func TestVolcanoPlacesNothingByTheRulesOfAnotherMode(t *testing.T) {
	inv := inventory(sharing.HAMiCore, "GPU-a", "GPU-b")
	inv.Devices[0].Mode = sharing.MIG
	gs := volcanoReads(t, inv, 1)
	vgpu.VGPUEnable = true
	if code, _, err := gs.FilterNode(pod("1", container("main", 2, 100, -1)), ""); err == nil {
		t.Errorf("Volcano would use the device in mode mig as one in mode hami-core: %d", code)
	}
	if _, _, err := gs.FilterNode(pod("2", container("main", 1, 100, -1)), ""); err != nil {
		t.Errorf("Volcano cannot use the other device: %v", err)
	}
}

func TestOurSignOfLifeIsNotTakenForAnAnswerOrAFarewell(t *testing.T) {
	key, value := wire.HandshakeAnnotation("2026.11.20 16:00:00")
	if key != deviceconfig.VolcanoVGPUHandshake || strings.Contains(value, "Requesting") || strings.Contains(value, "Deleted") {
		t.Errorf("got %s: %s", key, value)
	}
}

func volcanoConfig(t *testing.T) deviceconfig.Config {
	t.Helper()
	text, err := os.ReadFile("../../config/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c deviceconfig.Config
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestVolcanoReadsOurConfigMapToTheSameValues(t *testing.T) {
	theirs, ours := volcanoConfig(t).NvidiaConfig, config.DefaultDevice()
	if theirs.ResourceCountName != ours.CountName || theirs.ResourceMemoryName != ours.MemoryName ||
		theirs.ResourceCoreName != ours.CoreName || theirs.ResourceMemoryPercentageName != ours.PercentageName ||
		theirs.ResourcePriority != ours.PriorityName || theirs.OverwriteEnv != ours.OverwriteEnv ||
		int64(theirs.DefaultMemory) != ours.DefaultMemory || int64(theirs.DefaultCores) != ours.DefaultCores ||
		int64(theirs.DefaultGPUNum) != ours.DefaultCount || int64(theirs.DeviceSplitCount) != ours.SplitCount ||
		theirs.DeviceMemoryScaling != ours.MemoryScaling || theirs.DeviceCoreScaling != ours.CoreScaling ||
		theirs.DisableCoreLimit != ours.DisableCoreLimit || int64(theirs.GPUMemoryFactor) != ours.MemoryFactor {
		t.Errorf("Volcano reads %+v, we read %+v", theirs, ours)
	}
	var known []config.ModelGeometries
	for _, m := range theirs.MigGeometriesList {
		k := config.ModelGeometries{Models: m.Models}
		for _, g := range m.Geometries {
			geometry := sharing.Geometry{Name: g.Group}
			for _, i := range g.Instances {
				geometry.Entries = append(geometry.Entries, sharing.GeometryEntry{Profile: i.Name, Memory: sharing.MiBs(int64(i.Memory)), Count: i.Count})
			}
			k.Geometries = append(k.Geometries, geometry)
		}
		known = append(known, k)
	}
	if !reflect.DeepEqual(known, ours.Known) {
		t.Errorf("Volcano reads geometries %+v\nwe read %+v", known, ours.Known)
	}
}

func TestWeReadAConfigMapOfTheLegacyDevicePlugin(t *testing.T) {
	// The fields and their values as the legacy device plugin ships them.
	const shipped = `
nvidia:
  resourceCountName: volcano.sh/vgpu-number
  resourceMemoryName: volcano.sh/vgpu-memory
  resourceMemoryPercentageName: volcano.sh/vgpu-memory-percentage
  resourceCoreName: volcano.sh/vgpu-cores
  overwriteEnv: false
  defaultMemory: 0
  defaultCores: 0
  defaultGPUNum: 1
  deviceSplitCount: 10
  deviceMemoryScaling: 1
  deviceCoreScaling: 1
  gpuMemoryFactor: 1
  knownMigGeometries:
  - models: [ "A30" ]
    allowedGeometries:
      - group: "group1"
        geometries:
        - name: 1g.6gb
          memory: 6144
          count: 4
`
	d, problems := config.LoadDevice([]byte(shipped))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if g := d.Geometries("NVIDIA A30"); len(g) != 1 || g[0].Entries[0].Memory != 6144*sharing.MiB || d.SplitCount != 10 {
		t.Errorf("got %+v", d)
	}
}
