// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/endpoint"
	"deviceshare/endpoint/endpointtest"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// devices are three, of which as many are healthy.
func devices(healthy int) sharing.Inventory {
	inv := sharing.Inventory{}
	for i, id := range []sharing.DeviceID{"GPU-a", "GPU-b", "GPU-c"} {
		inv.Devices = append(inv.Devices, sharing.Device{
			ID: id, Index: i, Model: "A30", Memory: 24 * sharing.GiB, Cores: 100, Healthy: i < healthy, Mode: sharing.HAMiCore,
		})
	}
	return inv
}

// Snapshot implements States: a snapshot never changes.
func (s Snapshot) Snapshot() Snapshot { return s }

func known() Snapshot {
	r := checkpoint.Record{Namespace: "ns", Pod: "p", Container: "main", Mode: sharing.HAMiCore}
	r.Devices = []checkpoint.DeviceAndShare{{Device: "GPU-a", Memory: sharing.GiB, Cores: 30}}
	return Snapshot{
		Offered: devices(1), Working: devices(2),
		Config:  wire.ConfigVersions{Device: "d", Node: "n", Geometry: "g"},
		Records: []checkpoint.Record{r, {Namespace: "ns", Pod: "q", Container: "main", Mode: sharing.HAMiCore, Devices: r.Devices}},
	}
}

// serve starts m on a free port and returns how to get a page.
func serve(t *testing.T, m *Metrics, healthy func() error) func(path string) (int, string) {
	t.Helper()
	address := endpointtest.FreeAddress(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	users := endpointtest.NewUsers()
	users.Issue("token", "reader")
	users.Allow("reader", "/metrics", true)
	access := endpoint.NewAccess(users.Client(t))
	go func() { ended <- m.Serve(ctx, address, access, healthy) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(path string) (int, string) {
		t.Helper()
		authorization := "Bearer token"
		if path == "/healthz" {
			authorization = "" // the kubelet has none
		}
		deadline := time.Now().Add(10 * time.Minute)
		for {
			answer, err := endpointtest.Get("https://"+address+path, authorization)
			if err == nil {
				text, _ := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				return answer.StatusCode, string(text)
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func TestTheMetricsSayWhatWasDoneAndWhatIs(t *testing.T) {
	m := New("node-1", known(), nil)
	m.Allocated()
	m.Prepared(sharing.HAMiCore, 20*time.Millisecond)
	m.Refused()
	m.Released(nil)
	m.Released(errors.New("no"))
	m.Problem(ProblemDriver)
	m.Moved(sharing.MIG, "manual")
	m.Misplaced("evicted")
	_, text := serve(t, m, func() error { return nil })("/metrics")
	for _, want := range []string{
		`deviceshare_node_allocations_total{node="node-1"} 1`,
		`deviceshare_node_prepares_total{mode="hami-core",node="node-1"} 1`,
		`deviceshare_node_prepare_seconds_count{mode="hami-core",node="node-1"} 1`,
		`deviceshare_node_start_refusals_total{node="node-1"} 1`,
		`deviceshare_node_releases_total{node="node-1",result="failure"} 1`,
		`deviceshare_node_problems_total{kind="driver",node="node-1"} 1`,
		`deviceshare_node_problems_total{kind="publish",node="node-1"} 0`,
		`deviceshare_node_device_healthy{device="GPU-a",index="0",mode="hami-core",model="A30",node="node-1"} 1`,
		`deviceshare_node_device_healthy{device="GPU-b",index="1",mode="hami-core",model="A30",node="node-1"} 1`,
		`deviceshare_node_device_healthy{device="GPU-c",index="2",mode="hami-core",model="A30",node="node-1"} 0`,
		`deviceshare_node_device_ready{device="GPU-a",index="0",mode="hami-core",model="A30",node="node-1"} 1`,
		`deviceshare_node_device_ready{device="GPU-b",index="1",mode="hami-core",model="A30",node="node-1"} 0`,
		`deviceshare_config_info{device="d",geometry="g",node="n"} 1`,
		`deviceshare_node_mode_changes_total{mode="mig",node="node-1",result="manual"} 1`,
		`deviceshare_node_misplaced_pods_total{node="node-1",result="evicted"} 1`,
		fmt.Sprintf(`deviceshare_node_device_memory_given_bytes{device="GPU-a",index="0",mode="hami-core",model="A30",node="node-1"} %v`, float64(2*sharing.GiB)),
		`deviceshare_node_device_shares{device="GPU-a",index="0",mode="hami-core",model="A30",node="node-1"} 2`,
		`deviceshare_node_share_cores_percent{container="main",device="GPU-a",mode="hami-core",namespace="ns",node="node-1",pod="q"} 30`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
}

func TestHealthzSaysWhatIsWrong(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		code int
		text string
	}{
		"well":   {nil, 200, "ok"},
		"unwell": {errors.New("the state directory is out of reach"), 503, "state directory"},
	} {
		t.Run(name, func(t *testing.T) {
			code, text := serve(t, New("node-1", known(), nil), func() error { return tc.err })("/healthz")
			if code != tc.code || !strings.Contains(text, tc.text) {
				t.Errorf("%d %q", code, text)
			}
		})
	}
}

func TestAnAddressInUseNamesTheFlag(t *testing.T) {
	taken, err := net.Listen("tcp", endpointtest.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	access := endpoint.NewAccess(endpointtest.NewUsers().Client(t))
	err = New("node-1", known(), nil).Serve(context.Background(), taken.Addr().String(), access, func() error { return nil })
	if err == nil || !strings.Contains(err.Error(), "--metrics-address") {
		t.Errorf("the error is %v", err)
	}
}

func TestAPodThatTookAnothersNameCostsNoPage(t *testing.T) {
	from := known()
	from.Records = append(from.Records, from.Records[0])
	code, text := serve(t, New("node-1", from, nil), func() error { return nil })("/metrics")
	want := `deviceshare_node_share_cores_percent{container="main",device="GPU-a",mode="hami-core",namespace="ns",node="node-1",pod="p"} 60`
	if code != http.StatusOK || !strings.Contains(text, want+"\n") {
		t.Errorf("the answer is %d, without %s", code, want)
	}
}

func TestTheMetricsSayOfVirtualDevicesWhetherTheyAreLicensed(t *testing.T) {
	states := known()
	guest := func(id sharing.DeviceID, index int, virtual bool, l sharing.Licence) sharing.Device {
		return sharing.Device{ID: id, Index: index, Model: "A30", Mode: sharing.HAMiCore, Virtual: virtual, Licence: l}
	}
	states.Working.Devices = []sharing.Device{
		guest("GPU-a", 0, true, sharing.LicenceValid), guest("GPU-b", 1, true, sharing.LicenceMissing), guest("GPU-c", 2, true, sharing.LicenceUnknown), guest("GPU-d", 3, false, ""),
	}
	_, text := serve(t, New("node-1", states, nil), func() error { return nil })("/metrics")
	const name = "deviceshare_node_device_licensed{"
	for _, want := range []string{
		`device="GPU-a",index="0",mode="hami-core",model="A30",node="node-1"} 1`, `device="GPU-b",index="1",mode="hami-core",model="A30",node="node-1"} 0`,
	} {
		if !strings.Contains(text, name+want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	if n := strings.Count(text, name); n != 2 {
		t.Errorf("%d series, want 2", n)
	}
}
