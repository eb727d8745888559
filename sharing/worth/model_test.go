// SPDX-License-Identifier: Apache-2.0

package worth_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/worth"
)

// asks is a pod for a part of one device, in percent of memory and compute, with CPUs.
func asks(percent sharing.Percent, cpus float64, models ...string) worth.Kind {
	return worth.KindOf(podFor(1, percent, models...), worth.Amounts{CPU: 1000 * cpus})
}

func podFor(devices int, percent sharing.Percent, models ...string) *sharing.PodRequest {
	r := sharing.Request{Container: "main", Count: devices, Memory: sharing.PercentMemory(percent), Cores: percent}
	pod := sharingtest.Pod("p", r)
	pod.Selector.UseModels = models
	return pod
}

// learned is a model of so many pods of each kind, on a cluster with these devices.
func learned(t *testing.T, views []sharing.View, times int, kinds ...worth.Kind) *worth.Model {
	t.Helper()
	classes := map[worth.Class]int{}
	for i := range views {
		classes[worth.ClassOf(views[i].Device)]++
	}
	m := worth.NewModel(mixOf(times, kinds...), classes)
	if m == nil {
		t.Fatal("nothing was learned")
	}
	return m
}

// card is a device with one share of so many percent on it, none for 0.
func card(index int, model string, percent sharing.Percent) sharing.View {
	d := sharingtest.Device(index, model, sharing.HAMiCore)
	var held []sharing.Held
	if percent > 0 {
		held = []sharing.Held{{Owner: "x", Share: sharing.Share{Device: d.ID, Mode: d.Mode, Memory: percent.Of(d.Memory), Cores: percent}}}
	}
	return sharing.NewView(&d, held, factory.New())
}

func takes(device int, v *sharing.View, percent sharing.Percent) []worth.Taken {
	return []worth.Taken{{Device: device, Cost: sharing.Cost{Memory: percent.Of(v.Device.Memory), Cores: percent}, Shares: 1}}
}

func close(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

func TestWhatANodeLosesIsWhatLaterPodsCanNoLongerUse(t *testing.T) {
	empty := []sharing.View{card(0, "T4", 0)}
	half := []sharing.View{card(0, "T4", 50)}
	m := learned(t, empty, 60, asks(50, 0))
	for says, c := range map[string]struct {
		views   []sharing.View
		percent sharing.Percent
		want    float64
	}{
		"a half of an empty device":              {empty, 50, 0.5},
		"a tenth takes a half from later halves": {empty, 10, 0.5},
		"a tenth of what is left takes the rest": {half, 10, 0.5},
		"the whole":                              {empty, 100, 1},
	} {
		if got := m.NodeLoss(worth.Host{Views: c.views}, takes(0, &c.views[0], c.percent), worth.Amounts{}); !close(got, c.want) {
			t.Errorf("%s: %.3f, want %.3f", says, got, c.want)
		}
	}
	if got := m.NodeLoss(worth.Host{}, nil, worth.Amounts{CPU: 64_000}); got != 0 {
		t.Errorf("a node without devices loses %v", got)
	}
	var nothing *worth.Model
	if got := nothing.NodeLoss(worth.Host{Views: empty}, takes(0, &empty[0], 50), worth.Amounts{}); got != 0 {
		t.Errorf("with nothing learned a node loses %v", got)
	}
}

func TestAPodWithoutDevicesCostsTheDevicesItsCPUWasFor(t *testing.T) {
	views := []sharing.View{card(0, "T4", 0), card(1, "T4", 0)}
	m := learned(t, views, 60, asks(100, 8))
	for says, c := range map[string]struct{ free, needs, want float64 }{
		"CPU for both devices is left":  {32, 16, 0},
		"CPU for one device is left":    {16, 8, 1},
		"no CPU is left":                {16, 16, 2},
		"there is none for a device":    {0, 8, 0},
		"it takes what no device needs": {24, 8, 0},
	} {
		h := worth.Host{Views: views, Free: worth.Amounts{CPU: 1000 * c.free}}
		if got := m.NodeLoss(h, nil, worth.Amounts{CPU: 1000 * c.needs}); !close(got, c.want) {
			t.Errorf("%s: %.3f, want %.3f", says, got, c.want)
		}
	}
}

func TestDevicesThatFewServeWeighMore(t *testing.T) {
	common := []sharing.View{card(0, "T4", 0), card(1, "T4", 0), card(2, "T4", 0)}
	scarce := []sharing.View{card(0, "A30", 0)}
	m := learned(t, slices.Concat(common, scarce), 60, asks(100, 1), asks(100, 1, "A30"))
	cpu := worth.Amounts{CPU: 8000}
	weighed, knowsAll := m.Weigh(slices.Values([]worth.Host{{Views: common, Free: cpu}, {Views: scarce, Free: cpu}}))
	if !knowsAll {
		t.Error("a class is not known")
	}
	loss := func(m *worth.Model, views []sharing.View) float64 {
		return m.NodeLoss(worth.Host{Views: views, Free: cpu}, takes(0, &views[0], 100), worth.Amounts{})
	}
	if a, b := loss(weighed, scarce), loss(m, scarce); a <= b {
		t.Errorf("the scarce device is worth %.3f, %.3f before it was weighed", a, b)
	}
	if a, b := loss(weighed, scarce), loss(weighed, common); a <= 2*b {
		t.Errorf("the scarce device is worth %.3f, the common one %.3f", a, b)
	}
	strange := []sharing.View{card(0, "H100", 0)}
	if _, knowsAll = m.Weigh(slices.Values([]worth.Host{{Views: strange}})); knowsAll {
		t.Error("a class that nobody learned of is known")
	}
}

// Pods that need two whole devices of one node lose two when one of two is taken, and nothing when
// one of three is. Few nodes serving them is no reason to weigh more.
func TestDevicesThatAreNeededTogetherAreLostTogether(t *testing.T) {
	three := []sharing.View{card(0, "T4", 0), card(1, "T4", 0), card(2, "T4", 0)}
	m := learned(t, three, 60, worth.KindOf(podFor(2, 100), worth.Amounts{}))
	full := []sharing.View{card(0, "T4", 100), card(1, "T4", 50)}
	weighed, _ := m.Weigh(slices.Values([]worth.Host{{Views: three}, {Views: full}}))
	for n, want := range map[int]float64{3: 0, 2: 2, 1: 0} {
		for says, m := range map[string]*worth.Model{"learned": m, "weighed": weighed} {
			if got := m.NodeLoss(worth.Host{Views: three[:n]}, takes(0, &three[0], 100), worth.Amounts{}); !close(got, want) {
				t.Errorf("%s: one of %d devices is taken: %.3f, want %.3f", says, n, got, want)
			}
		}
	}
}

func TestTheMixIsReadAgainWhenItGrew(t *testing.T) {
	var a worth.Arrivals
	due := []int{}
	for i := range 1000 {
		owner := sharing.Owner(fmt.Sprint(i))
		if !a.Note(owner, asks(50, 1)) || a.Note(owner, asks(20, 1)) || !a.Knows(owner) {
			t.Fatal("a pod is noted once")
		}
		if a.Due() {
			due = append(due, i+1)
			if m := a.Mix(); len(m) != 1 || m[0].Count != i+1 {
				t.Fatalf("after %d pods the mix is %v", i+1, m)
			}
		}
	}
	if want := []int{50, 150, 250, 350, 466, 621, 827}; !slices.Equal(due, want) {
		t.Errorf("read after %v pods, want %v", due, want)
	}
	for i := range 30_000 {
		a.Note(sharing.Owner(fmt.Sprint("later ", i)), asks(10, 1))
	}
	if m := a.Mix(); a.Len() != 20_000 || !a.Full() || len(m) != 1 || m[0].Count != 20_000 || a.Knows("1") {
		t.Errorf("%d pods are remembered, the mix is %v", a.Len(), m)
	}
}

// The names of devices and their order on the node do not matter, nor does the order in which
// pods arrived. Losses are numbers, never below nothing, and the same when asked again.
func TestWhatIsLostDoesNotDependOnNamesOrOrders(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	models := []string{"T4", "A30", "A100-80", "H100"}
	for range 300 {
		var views []sharing.View
		for i := range 1 + r.IntN(8) {
			views = append(views, card(i, models[r.IntN(1+r.IntN(len(models)))], sharing.Percent(r.IntN(101))))
		}
		var kinds []worth.Kind
		for range 1 + r.IntN(12) {
			pod := podFor(1, sharing.Percent(1+r.IntN(100)), models[:r.IntN(3)]...)
			if r.IntN(4) == 0 {
				pod = podFor(1+r.IntN(8), 100)
			}
			if r.IntN(5) == 0 {
				pod = nil
			}
			kinds = append(kinds, worth.KindOf(pod, worth.Amounts{CPU: float64(r.IntN(9) * 1000), Memory: float64(r.IntN(3) << 30)}))
		}
		kinds = append(kinds, asks(30, 1))
		m := learned(t, views, 5, kinds...)
		m, _ = m.Weigh(slices.Values([]worth.Host{{Views: views, Free: worth.Amounts{CPU: 16_000, Memory: 1 << 33}}}))
		slices.Reverse(kinds)
		n := learned(t, views, 5, kinds...)
		n, _ = n.Weigh(slices.Values([]worth.Host{{Views: views, Free: worth.Amounts{CPU: 16_000, Memory: 1 << 33}}}))

		free := worth.Amounts{CPU: float64(r.IntN(32_000)), Memory: float64(r.IntN(1 << 34))}
		needs := worth.Amounts{CPU: float64(r.IntN(32_000)), Memory: float64(r.IntN(1 << 34))}
		d := r.IntN(len(views))
		take := takes(d, &views[d], sharing.Percent(r.IntN(101)))
		lost := m.NodeLoss(worth.Host{Views: views, Free: free}, take, needs)
		if math.IsNaN(lost) || math.IsInf(lost, 0) || lost < -1e-9 {
			t.Fatalf("%v is lost", lost)
		}
		order := r.Perm(len(views))
		var moved []sharing.View
		for to, from := range order {
			device := *views[from].Device
			device.ID, device.Index = sharing.DeviceID(fmt.Sprint("renamed-", to)), to
			moved = append(moved, sharing.NewView(&device, views[from].Held(), factory.New()))
		}
		take[0].Device = slices.Index(order, d)
		if again := n.NodeLoss(worth.Host{Views: moved, Free: free}, take, needs); math.Abs(again-lost) > 1e-9*(1+lost) {
			t.Fatalf("%v is lost, %v with other names and orders", lost, again)
		}
		take[0].Device = d
		if again := m.NodeLoss(worth.Host{Views: views, Free: free}, take, needs); again != lost {
			t.Fatalf("%v is lost, %v when asked again", lost, again)
		}
	}
}

func TestAbsurdAmountsAreLossesLikeOthers(t *testing.T) {
	views := []sharing.View{card(0, "T4", 0)}
	m := learned(t, views, 60, asks(50, 1))
	for _, x := range []float64{-1e300, -1, 0, 1e300, math.Inf(1), math.Inf(-1), math.NaN()} {
		for _, y := range []float64{-1e300, 0, math.Inf(1), math.NaN()} {
			lost := m.NodeLoss(worth.Host{Views: views, Free: worth.Amounts{CPU: x, Memory: y}}, takes(0, &views[0], 50), worth.Amounts{CPU: y, Memory: x})
			if math.IsNaN(lost) || math.IsInf(lost, 0) {
				t.Errorf("%v and %v free: %v is lost", x, y, lost)
			}
		}
	}
	if worth.NewModel(nil, nil) != nil {
		t.Error("something was learned of nothing")
	}
}
