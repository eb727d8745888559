// SPDX-License-Identifier: Apache-2.0

package sharing_test

import (
	"math/rand/v2"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/sharingtest"
)

func amounts(memory sharing.Bytes, cores sharing.Percent) sharing.Share {
	return sharing.Share{Device: "GPU-0", Mode: sharing.HAMiCore, Memory: memory * sharing.GiB, Cores: cores}
}

func by(owner sharing.Owner, kind sharing.ContainerKind, s sharing.Share) sharing.Held {
	return sharing.Held{Owner: owner, Container: "c", Kind: kind, Share: s}
}

func TestContainersThatNeverRunTogetherCountOnce(t *testing.T) {
	const i, s, a = sharing.Init, sharing.Sidecar, sharing.App
	d := sharingtest.Device(0, "A100-80", sharing.HAMiCore)
	cases := []struct {
		says    string
		held    []sharing.Held
		memory  sharing.Bytes
		cores   sharing.Percent
		sharers int
	}{
		{"nobody", nil, 0, 0, 0},
		{"two pods", []sharing.Held{by("p", a, amounts(1, 10)), by("q", a, amounts(2, 20))}, 3, 30, 2},
		{"init larger than app", []sharing.Held{by("p", i, amounts(5, 10)), by("p", a, amounts(2, 20))}, 5, 20, 1},
		{"init smaller than app", []sharing.Held{by("p", i, amounts(1, 10)), by("p", a, amounts(2, 20))}, 2, 20, 1},
		{"two inits", []sharing.Held{by("p", i, amounts(3, 10)), by("p", i, amounts(4, 5))}, 4, 10, 1},
		{"sidecar and app", []sharing.Held{by("p", s, amounts(3, 10)), by("p", a, amounts(4, 5))}, 7, 15, 2},
		{"sidecar before init", []sharing.Held{by("p", s, amounts(3, 10)), by("p", i, amounts(4, 5))}, 7, 15, 2},
		{"init before sidecar", []sharing.Held{by("p", i, amounts(4, 5)), by("p", s, amounts(3, 10))}, 4, 10, 1},
		{"inits of two pods", []sharing.Held{by("p", i, amounts(4, 5)), by("q", i, amounts(4, 5))}, 8, 10, 2},
		{"everything", []sharing.Held{
			by("p", i, amounts(9, 1)), by("p", s, amounts(2, 1)), by("p", i, amounts(8, 1)), by("p", a, amounts(3, 1)), by("p", a, amounts(4, 1)),
		}, 10, 3, 3},
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			v := sharing.NewView(&d, c.held, factory.New())
			if v.UsedMemory() != c.memory*sharing.GiB || v.UsedCores() != c.cores || v.Sharers() != c.sharers {
				t.Errorf("%v %d%% %d sharers; want %vGiB %d%% %d", v.UsedMemory(), v.UsedCores(), v.Sharers(), int64(c.memory), c.cores, c.sharers)
			}
			if v.FreeMemory() != d.Memory-v.UsedMemory() || v.FreeCores() != d.Cores-v.UsedCores() || v.Empty() != (c.sharers == 0) {
				t.Errorf("free %v, %d%%, empty %v", v.FreeMemory(), v.FreeCores(), v.Empty())
			}
		})
	}
}

// Facts written by others can be absurd. They must never make room.
func TestAbsurdFactsMakeNoRoom(t *testing.T) {
	d := sharingtest.Device(0, "A100-80", sharing.HAMiCore)
	for says, s := range map[string]sharing.Share{
		"negative memory":  amounts(-50, 0),
		"negative compute": amounts(1, -1000),
		"endless memory":   {Device: d.ID, Mode: sharing.HAMiCore, Memory: sharing.MaxBytes},
		"endless compute":  {Device: d.ID, Mode: sharing.HAMiCore, Cores: 1 << 62},
	} {
		v := sharing.NewView(&d, []sharing.Held{
			by("a", sharing.App, s), by("b", sharing.App, s), by("c", sharing.App, amounts(10, 50)), by("d", sharing.App, s), by("e", sharing.App, s),
		}, factory.New())
		if v.FreeMemory() > 70*sharing.GiB || v.FreeCores() > 50 || v.UsedMemory() < 0 || v.UsedCores() < 0 {
			t.Errorf("%s: free %v, %d%%", says, v.FreeMemory(), v.FreeCores())
		}
	}
}

// What the next container of a pod sees is the device with the containers of the
// pod that go on running.
func TestAfterLeavesTheRoomThatIsLeftBesideWhatRuns(t *testing.T) {
	d := sharingtest.Device(0, "A100-80", sharing.HAMiCore)
	r := rand.New(rand.NewPCG(5, 5))
	for range 500 {
		base := sharing.NewView(&d, []sharing.Held{by("other", sharing.App, amounts(sharing.Bytes(r.IntN(9)), 5))}, factory.New())
		quick, running := base, base.Held()
		for range r.IntN(5) {
			s := amounts(sharing.Bytes(1+r.IntN(9)), sharing.Percent(r.IntN(20)))
			kind := []sharing.ContainerKind{sharing.Sidecar, sharing.Init}[r.IntN(2)]
			quick = quick.After(kind, &s)
			if kind == sharing.Sidecar {
				running = append(running[:len(running):len(running)], by("self", kind, s)) // an ended init container leaves nothing
			}
		}
		slow := sharing.NewView(&d, running, factory.New())
		if quick.FreeMemory() != slow.FreeMemory() || quick.FreeCores() != slow.FreeCores() || quick.Sharers() != slow.Sharers() {
			t.Fatalf("After leaves %v %d%%, the shares %v %d%%", quick.FreeMemory(), quick.FreeCores(), slow.FreeMemory(), slow.FreeCores())
		}
		if base.Sharers() != 1 || len(base.Held()) != 1 {
			t.Fatal("the view before was changed")
		}
	}
}

func TestAdmitNamesTheFirstReasonAgainst(t *testing.T) {
	device := func(change func(*sharing.Device)) *sharing.Device {
		d := sharingtest.Device(0, "A100-80", sharing.HAMiCore)
		change(&d)
		return &d
	}
	same := device(func(*sharing.Device) {})
	changing := device(func(d *sharing.Device) { d.Healthy, d.Changing = false, true })
	virtual := device(func(d *sharing.Device) { d.Virtual, d.Licence = true, sharing.LicenceMissing })
	spread := func(group string) *sharing.Neighbours { return &sharing.Neighbours{Group: group, Spread: true} }
	none := by("other", sharing.App, amounts(1, 0))
	none.Neighbours = &sharing.Neighbours{Accepts: sharing.AcceptsNone}
	whole, exclusive := amounts(80, 0), amounts(1, 100)
	whole.Whole = true
	former := amounts(1, 0)
	former.Mode = sharing.MPS
	mine := by("me", sharing.App, amounts(1, 0))
	mine.Neighbours = spread("job")
	theirs := by("other", sharing.App, amounts(1, 0))
	theirs.Neighbours = spread("job")
	cases := []struct {
		says string
		v    sharing.View
		pod  sharing.PodRequest
		want sharing.Reason
	}{
		{"nothing against it", sharing.NewView(same, nil, factory.New()), sharing.PodRequest{}, sharing.Fits},
		{"unhealthy before anything else", sharing.NewView(device(func(d *sharing.Device) { d.Healthy = false; d.MaxShares = 0 }), nil, factory.New()), sharing.PodRequest{Modes: []sharing.Mode{sharing.MIG}}, sharing.Unhealthy},
		{"on the way into its mode", sharing.NewView(changing, nil, factory.New()), sharing.PodRequest{}, sharing.ChangingMode},
		{"on the way into another mode", sharing.NewView(changing, nil, factory.New()), sharing.PodRequest{Modes: []sharing.Mode{sharing.MIG}}, sharing.WrongMode},
		{"another mode", sharing.NewView(same, nil, factory.New()), sharing.PodRequest{Modes: []sharing.Mode{sharing.MIG, sharing.MPS}}, sharing.WrongMode},
		{"one of the modes", sharing.NewView(same, nil, factory.New()), sharing.PodRequest{Modes: []sharing.Mode{sharing.MIG, sharing.HAMiCore}}, sharing.Fits},
		{"held whole", sharing.NewView(same, []sharing.Held{by("a", sharing.App, whole)}, factory.New()), sharing.PodRequest{}, sharing.HeldExclusively},
		{"its compute held", sharing.NewView(same, []sharing.Held{by("a", sharing.App, exclusive)}, factory.New()), sharing.PodRequest{}, sharing.HeldExclusively},
		{"held whole by an init container", sharing.NewView(same, []sharing.Held{by("a", sharing.Init, whole)}, factory.New()), sharing.PodRequest{}, sharing.HeldExclusively},
		{"held in another mode", sharing.NewView(same, []sharing.Held{by("a", sharing.App, former)}, factory.New()), sharing.PodRequest{}, sharing.HeldExclusively},
		{"full", sharing.NewView(device(func(d *sharing.Device) { d.MaxShares = 1 }), []sharing.Held{theirs}, factory.New()), sharing.PodRequest{}, sharing.TooManyShares},
		{"the group is here", sharing.NewView(same, []sharing.Held{theirs}, factory.New()), sharing.PodRequest{Owner: "me", Neighbours: spread("job")}, sharing.GroupAlreadyHere},
		{"only the pod itself is here", sharing.NewView(same, []sharing.Held{mine}, factory.New()), sharing.PodRequest{Owner: "me", Neighbours: spread("job")}, sharing.Fits},
		{"another group is here", sharing.NewView(same, []sharing.Held{theirs}, factory.New()), sharing.PodRequest{Owner: "me", Neighbours: spread("task")}, sharing.Fits},
		{"a pod that accepts none is here", sharing.NewView(same, []sharing.Held{none}, factory.New()), sharing.PodRequest{Owner: "me"}, sharing.KeptApart},
		{"it accepts none and others are here", sharing.NewView(same, []sharing.Held{theirs}, factory.New()), sharing.PodRequest{Owner: "me", Neighbours: none.Neighbours}, sharing.WantsToBeAlone},
		{"it accepts none and nobody is here", sharing.NewView(same, nil, factory.New()), sharing.PodRequest{Owner: "me", Neighbours: none.Neighbours}, sharing.Fits},
		{"virtual and not wanted so", sharing.NewView(virtual, nil, factory.New()), sharing.PodRequest{Selector: sharing.Selector{Virtual: sharing.NeverVirtual}}, sharing.VirtualMismatch},
		{"virtual and wanted so", sharing.NewView(virtual, nil, factory.New()), sharing.PodRequest{Selector: sharing.Selector{Virtual: sharing.OnlyVirtual}}, sharing.Fits},
		{"virtual, and nobody minds", sharing.NewView(virtual, nil, factory.New()), sharing.PodRequest{}, sharing.Fits},
		{"not virtual and wanted so", sharing.NewView(same, nil, factory.New()), sharing.PodRequest{Selector: sharing.Selector{Virtual: sharing.OnlyVirtual}}, sharing.VirtualMismatch},
		{"not virtual and not wanted so", sharing.NewView(same, nil, factory.New()), sharing.PodRequest{Selector: sharing.Selector{Virtual: sharing.NeverVirtual}}, sharing.Fits},
		{"virtual, and of another model", sharing.NewView(virtual, nil, factory.New()), sharing.PodRequest{Selector: sharing.Selector{Virtual: sharing.OnlyVirtual, UseModels: []string{"H100"}}}, sharing.NotSelected},
		{"no group", sharing.NewView(same, []sharing.Held{theirs}, factory.New()), sharing.PodRequest{Owner: "me"}, sharing.Fits},
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			if got := c.v.Admit(&c.pod); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestSelectors(t *testing.T) {
	d := sharingtest.Device(1, "A100-80", sharing.HAMiCore)
	cases := []struct {
		says string
		s    sharing.Selector
		want bool
	}{
		{"none", sharing.Selector{}, true},
		{"model in any case", sharing.Selector{UseModels: []string{"a100"}}, true},
		{"one of the models", sharing.Selector{UseModels: []string{"H100", "A100-SXM4"}}, true},
		{"another model", sharing.Selector{UseModels: []string{"H100"}}, false},
		{"not this model", sharing.Selector{NotModels: []string{"nvidia"}}, false},
		{"not another model", sharing.Selector{NotModels: []string{"H100"}}, true},
		{"wanted and unwanted", sharing.Selector{UseModels: []string{"A100"}, NotModels: []string{"80GB"}}, false},
		{"this id", sharing.Selector{UseIDs: []sharing.DeviceID{"GPU-0", "GPU-1"}}, true},
		{"part of an id", sharing.Selector{UseIDs: []sharing.DeviceID{"GPU"}}, false},
		{"an id that contains it", sharing.Selector{UseIDs: []sharing.DeviceID{"GPU-10"}}, false},
		{"not this id", sharing.Selector{NotIDs: []sharing.DeviceID{"GPU-1"}}, false},
		{"not part of it", sharing.Selector{NotIDs: []sharing.DeviceID{"GPU"}}, true},
		{"this id and not another", sharing.Selector{UseIDs: []sharing.DeviceID{"GPU-2"}, NotIDs: []sharing.DeviceID{"GPU-3"}}, false},
		{"another model and not one more", sharing.Selector{UseModels: []string{"H100"}, NotModels: []string{"T4"}}, false},
		{"another model and not another id", sharing.Selector{UseModels: []string{"H100"}, NotIDs: []sharing.DeviceID{"GPU-3"}}, false},
		{"never virtual", sharing.Selector{Virtual: sharing.NeverVirtual}, true},
		{"only virtual", sharing.Selector{Virtual: sharing.OnlyVirtual}, false},
		{"never virtual, and another model", sharing.Selector{Virtual: sharing.NeverVirtual, UseModels: []string{"H100"}}, false},
		{"id and model both count", sharing.Selector{UseIDs: []sharing.DeviceID{"GPU-1"}, UseModels: []string{"H100"}}, false},
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			if got := c.s.Accepts(&d); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestAlikeDevicesAreThoseOfEqualStateAndKind(t *testing.T) {
	a, b := sharingtest.Device(0, "A100-80", sharing.HAMiCore), sharingtest.Device(1, "A100-80", sharing.HAMiCore)
	m, n := sharingtest.Device(2, "A30", sharing.MIG), sharingtest.Device(3, "A30", sharing.MIG)
	small := sharingtest.Device(4, "T4", sharing.HAMiCore)
	empty := func(d *sharing.Device) sharing.View { return sharing.NewView(d, nil, factory.New()) }
	used := func(d *sharing.Device) sharing.View {
		return sharing.NewView(d, []sharing.Held{by("x", sharing.App, amounts(1, 0))}, factory.New())
	}
	free := sharingtest.Free(n)
	p, q := sharingtest.Device(5, "T4", sharing.MPS), sharingtest.Device(6, "T4", sharing.MPS)
	q.MaxClients = 3
	cases := map[string]struct {
		v, w sharing.View
		want bool
	}{
		"two empty of one kind":     {empty(&a), empty(&b), true},
		"equally used":              {used(&a), used(&b), true},
		"one used":                  {used(&a), empty(&b), false},
		"different size":            {empty(&a), empty(&small), false},
		"different mode":            {empty(&a), empty(&m), false},
		"two empty to be cut":       {empty(&m), empty(&n), true},
		"cut by different rules":    {empty(&m), empty(&free), false},
		"serving fewer clients":     {empty(&p), empty(&q), false},
		"used to be cut, not asked": {used(&m), used(&n), false},
	}
	for says, c := range cases {
		if got := c.v.Alike(&c.w); got != c.want {
			t.Errorf("%s: %v", says, got)
		}
	}
}

// A pod never gets a device of another model than it names, nor is kept from one that it does not
// name: the names of many models begin with the name of another.
func TestASelectorTellsModelsApartWhoseNamesBeginTheSame(t *testing.T) {
	for _, c := range []struct {
		selector sharing.Selector
		model    string
		want     bool
	}{
		{sharing.Selector{UseModels: []string{"H20"}}, "NVIDIA H200", false},
		{sharing.Selector{UseModels: []string{"H20"}}, "NVIDIA H20", true},
		{sharing.Selector{UseModels: []string{"A10"}}, "NVIDIA A100-SXM4-80GB", false},
		{sharing.Selector{UseModels: []string{"L4"}}, "NVIDIA L40S", false},
		{sharing.Selector{UseModels: []string{"H200"}}, "NVIDIA GH200 480GB", false},
		{sharing.Selector{UseModels: []string{"L4", "L40S"}}, "NVIDIA L40S", true},
		{sharing.Selector{NotModels: []string{"A10"}}, "NVIDIA A100-SXM4-80GB", true},
		{sharing.Selector{NotModels: []string{"A10"}}, "NVIDIA A10", false},
		{sharing.Selector{UseModels: []string{"A100-80GB"}}, "NVIDIA A100-SXM4-80GB", true},
		{sharing.Selector{UseModels: []string{"A100"}, NotModels: []string{"A100-PCIE"}}, "NVIDIA A100 80GB PCIe", false},
	} {
		if got := c.selector.Accepts(&sharing.Device{Model: c.model}); got != c.want {
			t.Errorf("%+v accepts %s: %v, want %v", c.selector, c.model, got, c.want)
		}
	}
}

// What is summed up of devices must be what pods are told: a device is open if it admits a pod of
// which nothing is known, or would but for pods that accept some others.
func TestADeviceIsOpenIfItAdmitsSomePod(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	open, answers := 0, map[sharing.Reason]int{}
	for range 20_000 {
		d := sharingtest.Device(0, "A100-80", []sharing.Mode{sharing.HAMiCore, sharing.TimeSlicing, sharing.MIG}[r.IntN(3)])
		if d.Mode == sharing.MIG && r.IntN(3) == 0 {
			d.MIG = nil
		}
		d.Healthy, d.Changing, d.MaxShares = r.IntN(9) > 0, r.IntN(9) == 0, 1+r.IntN(5)
		if r.IntN(9) == 0 {
			d.Cordon = &sharing.Cordon{}
		}
		var held []sharing.Held
		alone := false
		for _, owner := range []sharing.Owner{"a", "b", "c"}[:r.IntN(4)] {
			s := sharing.Share{Device: d.ID, Mode: d.Mode, Memory: sharing.GiB, Whole: r.IntN(12) == 0}
			if r.IntN(12) == 0 {
				s.Mode = sharing.MPS
			}
			if r.IntN(12) == 0 {
				s.Cores = 100
			}
			h := by(owner, sharing.App, s)
			if r.IntN(3) == 0 {
				h.Neighbours = &sharing.Neighbours{Group: "g", Accepts: sharing.Acceptance(r.IntN(4)), Spread: r.IntN(2) == 0}
				alone = alone || h.Neighbours.Accepts == sharing.AcceptsNone
			}
			held = append(held, h)
		}
		v := sharing.NewView(&d, held, factory.New())
		reason := v.Admit(&sharing.PodRequest{})
		answers[reason]++
		if want := reason == sharing.Fits || reason == sharing.KeptApart && !alone; v.IsOpen() != want {
			t.Fatalf("%+v with %+v is open: %v, and admits: %v", d, held, v.IsOpen(), reason)
		}
		if v.IsOpen() {
			open++
		}
	}
	for _, reason := range []sharing.Reason{sharing.Fits, sharing.Unhealthy, sharing.ChangingMode, sharing.PartitionsUnknown, sharing.Cordoned,
		sharing.TooManyShares, sharing.HeldExclusively, sharing.KeptApart} {
		if answers[reason] < 50 {
			t.Errorf("%v is the answer %d times: that says little", reason, answers[reason])
		}
	}
	if open < 2000 {
		t.Errorf("%d are open: that says little", open)
	}
}
