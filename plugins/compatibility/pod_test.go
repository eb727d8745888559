// SPDX-License-Identifier: Apache-2.0

package compatibility_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api/devices/nvidia/vgpu"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// amounts are what one device has given.
type amounts struct {
	shares, memory, cores int64 // memory in MiB
}

// given adds up a placement as Volcano must: app containers only.
func given(p sharing.Placement) map[string]amounts {
	out := map[string]amounts{}
	for _, c := range p.Containers {
		for _, s := range c.Shares {
			if c.Kind == sharing.App {
				a := out[string(s.Device)]
				out[string(s.Device)] = amounts{a.shares + 1, a.memory + s.Memory.WholeMiB(), a.cores + int64(s.Cores)}
			}
		}
	}
	return out
}

// counted is what Volcano has on its books.
func counted(gs *vgpu.GPUDevices, factor int64) map[string]amounts {
	out := map[string]amounts{}
	for _, d := range gs.Device {
		if d.UsedNum > 0 {
			out[d.UUID] = amounts{int64(d.UsedNum), int64(d.UsedMem) * factor, int64(d.UsedCore)}
		}
	}
	return out
}

func TestVolcanoCountsWhatWeGave(t *testing.T) {
	for name, c := range map[string]struct {
		containers []sharing.ContainerShares
		factor     int64
	}{
		"one share":                    {[]sharing.ContainerShares{app("a", share("GPU-a", 1000, 30))}, 1},
		"two devices of one container": {[]sharing.ContainerShares{app("a", share("GPU-a", 1000, 30), share("GPU-b", 1000, 30))}, 1},
		"two containers on one device": {[]sharing.ContainerShares{app("a", share("GPU-a", 1000, 30)), app("b", share("GPU-a", 500, 0))}, 1},
		"a factor":                     {[]sharing.ContainerShares{app("a", share("GPU-a", 1000, 30))}, 100},
		"init containers, which it does not know": {[]sharing.ContainerShares{
			{Container: "i", Kind: sharing.Init, Shares: []sharing.Share{share("GPU-a", 700, 5)}},
			{Container: "s", Kind: sharing.Sidecar, Shares: []sharing.Share{share("GPU-b", 700, 5)}},
			app("a", share("GPU-a", 1000, 30)),
		}, 1},
		"an empty entry": {[]sharing.ContainerShares{app("zero"), app("a", share("GPU-b", 1000, 0))}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			placement := sharing.Placement{Node: "node1", Containers: c.containers}
			gs := volcanoReads(t, inventory(sharing.HAMiCore, "GPU-a", "GPU-b"), c.factor)
			p := placed(t, "1", placement, c.factor)
			gs.AddResource(p)
			if got := counted(gs, c.factor); !reflect.DeepEqual(got, given(placement)) {
				t.Errorf("Volcano counts %v, given is %v", got, given(placement))
			}
			gs.SubResource(p)
			if got := counted(gs, c.factor); len(got) > 0 {
				t.Errorf("Volcano still counts %v", got)
			}
		})
	}
}

func TestVolcanoCountsWhateverWeGive(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ids := []sharing.DeviceID{"GPU-a", "GPU-b", "GPU-c", "GPU-d"}
	for round := range 200 {
		placement := sharing.Placement{Node: "node1"}
		for c := range 1 + r.IntN(4) {
			shares := []sharing.Share{}
			for _, id := range ids {
				if r.IntN(2) == 0 {
					shares = append(shares, share(id, 1+r.Int64N(5000), sharing.Percent(r.IntN(26))))
				}
			}
			placement.Containers = append(placement.Containers, app(fmt.Sprint("c", c), shares...))
		}
		gs := volcanoReads(t, inventory(sharing.HAMiCore, ids...), 1)
		gs.AddResource(placed(t, fmt.Sprint(round), placement, 1))
		if got := counted(gs, 1); !reflect.DeepEqual(got, given(placement)) {
			t.Fatalf("Volcano counts %v, given is %v", got, given(placement))
		}
	}
}

func TestWeReadWhatVolcanoDecides(t *testing.T) {
	for name, c := range map[string]struct {
		containers []corev1.Container
		want       []sharing.ContainerShares
	}{
		"one device": {
			[]corev1.Container{container("a", 1, 1000, 30)},
			[]sharing.ContainerShares{app("a", share("GPU-b", 1000, 30))},
		},
		"memory alone is one device": {
			[]corev1.Container{container("a", -1, 1000, -1)},
			[]sharing.ContainerShares{app("a", share("GPU-b", 1000, 0))},
		},
		"no memory is all of it": {
			[]corev1.Container{container("a", 1, -1, -1)},
			[]sharing.ContainerShares{app("a", share("GPU-b", 80000, 0))},
		},
		"two devices": {
			[]corev1.Container{container("a", 2, 1000, 30)},
			[]sharing.ContainerShares{app("a", share("GPU-b", 1000, 30), share("GPU-a", 1000, 30))},
		},
		"a plain container first": {
			[]corev1.Container{container("plain", -1, -1, -1), container("a", 1, 1000, 30), container("b", 1, 500, 0)},
			[]sharing.ContainerShares{app("a", share("GPU-b", 1000, 30)), app("b", share("GPU-b", 500, 0))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inv := inventory(sharing.HAMiCore, "GPU-a", "GPU-b")
			gs := volcanoReads(t, inv, 1)
			p := pod("1", c.containers...)
			a := volcanoDecides(t, gs, p)
			got, found, err := wire.ReadPlacement(a, refs(p), &inv, 1)
			if err != nil || !found {
				t.Fatalf("%v, %v: %v", found, err, a)
			}
			if want := (sharing.Placement{Node: "node1", Containers: c.want}); !reflect.DeepEqual(got, want) {
				t.Errorf("Volcano wrote %s\nwe read %+v\nwant    %+v", a[wire.PodAssigned], got, want)
			}
			if !reflect.DeepEqual(given(got), counted(gs, 1)) {
				t.Errorf("we read %v, Volcano counts %v", given(got), counted(gs, 1))
			}
			ours, err := wire.PlacementAnnotations(got, 1, 1, refs(p)...)
			if err != nil {
				t.Fatal(err)
			}
			if ours[wire.PodAssigned] != a[wire.PodAssigned] || ours[wire.PodToAllocate] != a[wire.PodToAllocate] || ours[wire.PodBindPhase] != a[wire.PodBindPhase] {
				t.Errorf("we write %v, Volcano wrote %v", ours, a)
			}
		})
	}
}

// While it decides, Volcano books a whole device for a container that asks for
// none, so the other one is given. We read what was given.
func TestWeReadTheEmptyEntryOfAContainerWithNumber0(t *testing.T) {
	inv := inventory(sharing.HAMiCore, "GPU-a", "GPU-b")
	p := pod("1", container("zero", 0, -1, -1), container("a", 1, 1000, 30))
	a := volcanoDecides(t, volcanoReads(t, inv, 1), p)
	got, found, err := wire.ReadPlacement(a, refs(p), &inv, 1)
	if want := []sharing.ContainerShares{app("a", share("GPU-a", 1000, 30))}; err != nil || !found || !reflect.DeepEqual(got.Containers, want) {
		t.Errorf("Volcano wrote %s\nwe read %+v, %v", a[wire.PodAssigned], got, err)
	}
}

func TestWeReadThePartitionVolcanoChose(t *testing.T) {
	inv, gs := partitioned(t)
	p := pod("1", container("a", 1, 15000, -1))
	a := volcanoDecides(t, gs, p)
	got, found, err := wire.ReadPlacement(a, refs(p), &inv, 1)
	if err != nil || !found {
		t.Fatalf("%v, %v: %v", found, err, a)
	}
	want := sharing.Share{
		Device: "GPU-a", Mode: sharing.MIG, Memory: 19968 * sharing.MiB,
		Partition: sharing.Partition{Profile: "2g.20gb", Start: 0, Size: 2, Geometry: "group2", Position: 0},
	}
	if got.Containers[0].Shares[0] != want {
		t.Errorf("Volcano wrote %s\nwe read %+v\nwant    %+v", a[wire.PodAssigned], got.Containers[0].Shares[0], want)
	}
}

func TestVolcanoCountsThePartitionsWeGave(t *testing.T) {
	_, gs := partitioned(t)
	part := func(profile string, mib int64, start, size, position int) sharing.Share {
		return sharing.Share{
			Device: "GPU-a", Mode: sharing.MIG, Memory: sharing.MiBs(mib),
			Partition: sharing.Partition{Profile: profile, Start: start, Size: size, Geometry: "group2", Position: position},
		}
	}
	one := placed(t, "1", sharing.Placement{Node: "node1", Containers: []sharing.ContainerShares{app("a", part("2g.20gb", 19968, 2, 2, 1))}}, 1)
	two := placed(t, "2", sharing.Placement{Node: "node1", Containers: []sharing.ContainerShares{app("a", part("1g.10gb", 9728, 6, 1, 3))}}, 1)
	gs.AddResource(one)
	gs.AddResource(two)
	if got, want := counted(gs, 1)["GPU-a"], (amounts{2, 19968 + 9728, 0}); got != want {
		t.Errorf("Volcano counts %+v, given is %+v", got, want)
	}
	used := map[string][]int{}
	for _, u := range gs.Device[0].MigUsage.UsageList {
		used[u.Name] = u.UsedIndex
	}
	if want := map[string][]int{"2g.20gb": {1}, "1g.10gb": {0}}; !reflect.DeepEqual(used, want) {
		t.Errorf("Volcano takes the partitions for %v, want %v", used, want)
	}
	gs.SubResource(one)
	gs.SubResource(two)
	if got := counted(gs, 1); len(got) > 0 || gs.Device[0].UsedMem != 0 {
		t.Errorf("Volcano still counts %v, %d MiB", got, gs.Device[0].UsedMem)
	}
}
