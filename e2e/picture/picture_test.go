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
