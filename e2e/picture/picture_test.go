// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"testing"

	"deviceshare/sharing"
)

func TestAStripShowsWhoHoldsWhatInProportion(t *testing.T) {
	inv := sharing.Inventory{Node: "n1", Devices: []sharing.Device{
		{ID: "GPU-0", Index: 0, Model: "A100", Memory: 80 * sharing.GiB, Cores: 100, MaxShares: 10, Healthy: true, Mode: sharing.HAMiCore},
		{ID: "GPU-3", Index: 3, Model: "A100", Memory: 80 * sharing.GiB, Cores: 100, MaxShares: 10, Mode: sharing.HAMiCore},
	}}
	share := func(d sharing.DeviceID, m sharing.Bytes, c sharing.Percent, whole bool) sharing.Placement {
		return sharing.Placement{Node: "n1", Containers: []sharing.ContainerShares{
			{Container: "main", Shares: []sharing.Share{{Device: d, Mode: sharing.HAMiCore, Memory: m, Cores: c, Whole: whole}}}}}
	}
	pods := []Pod{
		{Owner: "1", Name: "train", Placement: share("GPU-0", 40*sharing.GiB, 30, false)},
		{Owner: "2", Name: "tiny", Placement: share("GPU-0", 100*sharing.MiB, 0, false)},
		{Owner: "3", Name: "big", Placement: share("GPU-3", 80*sharing.GiB, 100, true)},
	}
	elsewhere := share("GPU-0", sharing.GiB, 0, false)
	elsewhere.Node = "n2"
	pods = append(pods, Pod{Owner: "4", Name: "far", Placement: elsewhere})
	want := `node n1
  GPU 0  A100  hami-core
  [aaaaaaaaaaaaaaaaaaaab...................]  40.0 GiB of 80.0 GiB, 2 shares, 30% of compute promised
     a  train/main                     40.0 GiB  30% compute
     b  tiny/main                       100 MiB  no compute limit
  GPU 3  A100  hami-core  UNHEALTHY
  [cccccccccccccccccccccccccccccccccccccccc]  80.0 GiB of 80.0 GiB, 1 share, all compute
     c  big/main                       80.0 GiB  whole device, nothing intercepted
`
	if got := Node(inv, pods); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAStripNeverRunsOverItsWidth(t *testing.T) {
	held := make([]sharing.Held, 3*Width)
	for i := range held {
		held[i].Share.Memory = sharing.MaxBytes
	}
	for _, total := range []sharing.Bytes{0, 1, sharing.GiB, sharing.MaxBytes} {
		if got := len([]rune(strip(held, total, 0))); got != Width {
			t.Errorf("strip over %v has %d cells, want %d", total, got, Width)
		}
	}
}

func TestAPartitionedDeviceShowsItsSlices(t *testing.T) {
	inv := sharing.Inventory{Node: "n1", Devices: []sharing.Device{
		{ID: "GPU-0", Model: "A100", Memory: 80 * sharing.GiB, Cores: 100, MaxShares: 7, Healthy: true, Mode: sharing.MIG,
			MIG: &sharing.Partitioning{Slices: 8}},
		{ID: "GPU-1", Index: 1, Model: "A30", Memory: 24 * sharing.GiB, Cores: 100, MaxShares: 4, Healthy: true, Mode: sharing.MIG,
			MIG: &sharing.Partitioning{Slices: 4}},
	}}
	on := func(d sharing.DeviceID, m sharing.Bytes, p sharing.Partition) sharing.Placement {
		return sharing.Placement{Node: "n1", Containers: []sharing.ContainerShares{
			{Container: "main", Shares: []sharing.Share{{Device: d, Mode: sharing.MIG, Memory: m, Partition: p}}}}}
	}
	pods := []Pod{
		{Owner: "1", Name: "half", Placement: on("GPU-0", 39*sharing.GiB, sharing.Partition{Profile: "3g.40gb", Start: 4, Size: 4})},
		{Owner: "2", Name: "small", Placement: on("GPU-0", 9*sharing.GiB, sharing.Partition{Profile: "1g.10gb", Start: 1, Size: 1})},
		{Owner: "3", Name: "all", Placement: on("GPU-1", 23*sharing.GiB, sharing.Partition{Profile: "4g.24gb", Start: 0, Size: 4})},
	}
	want := `node n1
  GPU 0  A100  mig
  [....|bbbb|....|....|aaaaaaaaaaaaaaaaaaaa]  48.0 GiB of 80.0 GiB, 2 shares, 0% of compute promised
     a  half/main                      39.0 GiB  3g.40gb at slice 4
     b  small/main                      9.0 GiB  1g.10gb at slice 1
  GPU 1  A30  mig
  [cccccccccccccccccccccccccccccccccccccccc]  23.0 GiB of 24.0 GiB, 1 share, 0% of compute promised
     c  all/main                       23.0 GiB  4g.24gb at slice 0
`
	if got := Node(inv, pods); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAPartitionBeyondTheDeviceIsCutOff(t *testing.T) {
	held := []sharing.Held{{Share: sharing.Share{Partition: sharing.Partition{Start: 6, Size: 9}}}, {Share: sharing.Share{Partition: sharing.Partition{Start: -3, Size: 4}}}}
	if got := slots(held, 8, 0); len(got) != Width {
		t.Errorf("drawn in %d cells, want %d: %s", len(got), Width, got)
	}
}
