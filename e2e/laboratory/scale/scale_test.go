// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestTheRatioIsTheMedianOfPairsAndNotOfAllTurns(t *testing.T) {
	// The machine slows down from pair to pair, and both kinds with it.
	device := []turn{{took: 10 * time.Second}, {took: 20 * time.Second}, {took: 40 * time.Second}}
	cpu := []turn{{took: 9 * time.Second}, {took: 19 * time.Second}, {took: 40 * time.Second}}
	r := rowOf(200, Workload{Name: Bare, Pods: 100}, device, cpu)
	if math.Abs(r.Ratio-0.95) > 1e-9 || math.Abs(r.Low-0.9) > 1e-9 || r.High != 1 {
		t.Errorf("ratio %v (%v to %v), want 0.95 (0.9 to 1)", r.Ratio, r.Low, r.High)
	}
	if r.Device.PodsPerSecond != 5 {
		t.Errorf("%v pods/s, want 5", r.Device.PodsPerSecond)
	}
}

func TestTheKindsBeginAPairInTurns(t *testing.T) {
	first := map[kind]int{}
	for i := range 6 {
		both := order(i)
		if both[0] == both[1] {
			t.Errorf("pair %d is %v twice", i, both[0])
		}
		first[both[0]]++
	}
	if first[withDevices] != 3 || first[cpuOnly] != 3 {
		t.Errorf("of 6 pairs, so many begin with each kind: %v", first)
	}
}

func TestTheLoadsPartIsOfAllProcessorTime(t *testing.T) {
	one := []turn{{took: time.Second, scheduler: 6 * time.Second, load: time.Second, rest: 3 * time.Second}}
	if r := rowOf(200, Workload{Name: Bare, Pods: 1}, one, one); r.Load != 0.1 {
		t.Errorf("part %v, want 0.1", r.Load)
	}
}

func TestTheMedianOfAnEvenNumberIsBetweenTheTwoInTheMiddle(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 4}, 4}, {[]float64{8, 1, 4, 2}, 3}} {
		if got := median(c.of); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.of, got, c.want)
		}
	}
}

// sample is a stack, the innermost function first.
func sample(value int64, stack ...string) *profile.Sample {
	s := &profile.Sample{Value: []int64{1, value}}
	for _, name := range stack {
		s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}})
	}
	return s
}

func TestTheRuntimesWorkIsChargedToItsCaller(t *testing.T) {
	p := &profile.Profile{Sample: []*profile.Sample{
		sample(50, "runtime.mapassign", "volcano.sh/volcano/pkg/scheduler/api.(*NodeInfo).Clone", "main.main"),
		sample(20, "strings.Index", "deviceshare/plugins/deviceshare.readAsk", "volcano.sh/volcano/pkg/scheduler/api.(*NodeInfo).Clone"),
		sample(20, "runtime.scanobject", "runtime.gcDrain", "runtime.gcBgMarkWorker"),
		sample(10, "runtime.futex", "runtime.schedule"),
	}}
	want := []Hot{{"api.(*NodeInfo).Clone", 0.5}, {"deviceshare.readAsk", 0.2}, {garbage, 0.2}}
	if got := hottest(p, 3); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := hottest(p, 9); len(got) != 4 || got[3].Name != "runtime.schedule" {
		t.Errorf("what nobody called is %v", got)
	}
}

func TestProcessorTimesAreReadBehindAnyName(t *testing.T) {
	text := "12 (a) b) (c) S 1 12 12 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 100 1000 10"
	if got, err := parseStat(text); err != nil || got != 3*time.Second {
		t.Errorf("%v, %v, want 3s", got, err)
	}
	for _, bad := range []string{"", "12 (a) S 1", "12 (a) S 1 2 3 4 5 6 7 8 9 10 x 12"} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("%q gives %v", bad, got)
		}
	}
}

func TestThePeakOfThisProcessCanBeCountedAnew(t *testing.T) {
	if err := forgetPeak(os.Getpid()); err != nil {
		t.Skip(err) // a kernel without it
	}
	if mib, err := peakMiB(os.Getpid()); err != nil || mib <= 0 {
		t.Errorf("%d MiB, %v", mib, err)
	}
	if used, err := processor(os.Getpid()); err != nil || used < 0 {
		t.Errorf("%v, %v", used, err)
	}
}

// pod is a pod with a share of one device.
func pod(t *testing.T, device string, memory int64, cores sharing.Percent) seenPod {
	t.Helper()
	texts, err := wire.PlacementAnnotations(sharing.Placement{Node: "n", Containers: []sharing.ContainerShares{{Container: "main",
		Shares: []sharing.Share{{Device: sharing.DeviceID(device), Mode: sharing.HAMiCore, Memory: sharing.MiBs(memory), Cores: cores}}}}}, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	return seenPod{placement: texts[wire.PodPlacement]}
}

func TestADeviceThatIsGivenTwiceIsFound(t *testing.T) {
	whole := func() seenPod { return pod(t, "GPU-0", deviceMemory, 50) }
	for name, c := range map[string]struct {
		pods map[podName]seenPod
		want string // "" for none
	}{
		"two whole devices":          {map[podName]seenPod{{"d", "a"}: whole(), {"d", "b"}: pod(t, "GPU-1", deviceMemory, 100)}, ""},
		"one device to two pods":     {map[podName]seenPod{{"d", "a"}: whole(), {"d", "b"}: pod(t, "GPU-0", 1, 1)}, "given away twice"},
		"more compute than there is": {map[podName]seenPod{{"d", "a"}: pod(t, "GPU-0", 1, 60), {"d", "b"}: pod(t, "GPU-0", 1, 60)}, "given away twice"},
		"no placement":               {map[podName]seenPod{{"d", "a"}: {}}, "no placement"},
	} {
		err := checkDevices(c.pods)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestNodesDescribeTheirDevices(t *testing.T) {
	n, err := node(7)
	if err != nil {
		t.Fatal(err)
	}
	inv, err := wire.DecodeInventory(n.Annotations[wire.NodeInventory])
	if err != nil || len(inv.Devices) != devicesPerNode || inv.Node != "n00007" {
		t.Errorf("%d devices on %q: %v", len(inv.Devices), inv.Node, err)
	}
}

func TestKindsDifferInDevicesOnly(t *testing.T) {
	device, cpu := withDevices.spec(), cpuOnly.spec()
	amounts := device.Containers[0].Resources.Limits
	for name := range amounts {
		if strings.HasPrefix(string(name), "volcano.sh/") {
			delete(amounts, name)
		}
	}
	if !reflect.DeepEqual(device, cpu) {
		t.Errorf("beside devices they ask for %v and %v", device, cpu)
	}
}
