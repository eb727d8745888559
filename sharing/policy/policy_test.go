// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/worth"
)

// node is the score of a node as it is.
func node(p policy.Policy, views []sharing.View, pod *sharing.PodRequest) float64 {
	return p.Node(worth.Host{Views: views}, pod, nil, worth.Amounts{})
}

func named(t *testing.T, name string) policy.Policy {
	t.Helper()
	p, ok := policy.Named(name)
	if !ok {
		t.Fatalf("no policy %q", name)
	}
	return p
}

// used is a device of a model with shares of this many GiB and percent on it.
func used(index int, model string, cores sharing.Percent, gib ...int) sharing.View {
	d := sharingtest.Device(index, model, sharing.HAMiCore)
	var held []sharing.Held
	for i, n := range gib {
		held = append(held, sharing.Held{Owner: sharing.Owner(fmt.Sprint(i)), Share: sharing.Share{
			Device: d.ID, Mode: d.Mode, Memory: sharing.Bytes(n) * sharing.GiB, Cores: cores,
		}})
	}
	return sharing.NewView(&d, held, factory.New())
}

func TestPoliciesAreNamedExactly(t *testing.T) {
	for _, name := range policy.Names() {
		if p := named(t, name); p.Name() != name {
			t.Errorf("%q is named %q", name, p.Name())
		}
	}
	if len(policy.Names()) != 3 {
		t.Errorf("%v", policy.Names())
	}
	for _, name := range []string{"", "Binpack", "spread ", "best"} {
		if _, ok := policy.Named(name); ok {
			t.Errorf("%q is a policy", name)
		}
	}
}

func TestWhichDeviceAPolicyPrefers(t *testing.T) {
	cases := []struct {
		says           string
		better, worse  sharing.View
		memory         sharing.Bytes
		cores          sharing.Percent
		binpack, other string
	}{
		{says: "the used one for binpack", better: used(0, "A100-80", 0, 10), worse: used(1, "A100-80", 0), memory: 1, binpack: "better", other: "worse"},
		{says: "the fuller one", better: used(0, "A100-80", 0, 30), worse: used(1, "A100-80", 0, 10), memory: 1, binpack: "better", other: "worse"},
		{says: "the one with less compute left", better: used(0, "A100-80", 50, 10), worse: used(1, "A100-80", 10, 10), memory: 1, binpack: "better", other: "worse"},
		{says: "the smaller one", better: used(0, "T4", 0), worse: used(1, "A100-80", 0), memory: 10, binpack: "better", other: "worse"},
		{says: "fewer sharers count more than free memory", better: used(0, "A100-80", 0, 1, 1), worse: used(1, "A100-80", 0, 60), memory: 1, binpack: "worse", other: "worse"},
		{says: "equal devices are equal", better: used(0, "A100-80", 5, 10), worse: used(1, "A100-80", 5, 10), memory: 1, binpack: "", other: ""},
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			cost := sharing.Cost{Memory: c.memory * sharing.GiB, Cores: c.cores}
			for name, want := range map[string]string{"binpack": c.binpack, "spread": c.other} {
				p := named(t, name)
				a, b := p.Device(&c.better, cost), p.Device(&c.worse, cost)
				got := ""
				switch {
				case a > b:
					got = "better"
				case a < b:
					got = "worse"
				}
				if got != want {
					t.Errorf("%s scores %d and %d: prefers %q, want %q", name, a, b, got, want)
				}
			}
		})
	}
}

func TestWhichNodeAPolicyPrefers(t *testing.T) {
	pod := sharingtest.Pod("p", sharingtest.Ask("main", 1000, 0))
	sick := used(0, "A100-80", 0, 80)
	d := *sick.Device
	d.Healthy = false
	sick = sharing.NewView(&d, sick.Held(), factory.New())
	bare := sharingtest.Device(0, "A100-80", sharing.HAMiCore)
	bare.Memory, bare.Cores = 0, 0
	nodes := map[string][]sharing.View{
		"with no memory and no compute": {sharing.NewView(&bare, nil, factory.New())},
		"empty":                         {used(0, "A100-80", 0), used(1, "A100-80", 0)},
		"hardly used":                   {used(0, "A100-80", 0, 1), used(1, "A100-80", 0)},
		"half":                          {used(0, "A100-80", 0, 80), used(1, "A100-80", 100, 80)},
		"full":                          {used(0, "A100-80", 100, 80), used(1, "A100-80", 100, 80)},
		"full and sick":                 {used(0, "A100-80", 0), sick},
		"many empty":                    {used(0, "T4", 0), used(1, "T4", 0), used(2, "T4", 0), used(3, "T4", 0)},
		"nothing":                       nil,
	}
	want := map[string]struct{ binpack, spread float64 }{
		"empty": {0, 100}, "hardly used": {1, 99}, "half": {75, 25}, "full": {100, 0},
		"full and sick":                 {0, 100}, // a broken device is no reason to come or to stay away
		"many empty":                    {0, 100}, // nor is the number of devices
		"nothing":                       {0, 0},
		"with no memory and no compute": {100, 0}, // what offers nothing counts as full
	}
	for says, views := range nodes {
		b, s := node(named(t, "binpack"), views, pod), node(named(t, "spread"), views, pod)
		if b != want[says].binpack || s != want[says].spread {
			t.Errorf("%s: binpack %v, spread %v; want %+v", says, b, s, want[says])
		}
	}
	picky := *pod
	picky.Selector.UseIDs = []sharing.DeviceID{"GPU-1"}
	half := []sharing.View{used(0, "A100-80", 100, 80), used(1, "A100-80", 0)}
	if got := node(named(t, "binpack"), half, &picky); got != 0 {
		t.Errorf("a node is scored by the devices the pod may use: %v, want 0", got)
	}
}

func TestScoresStayInTheirBoundsWhateverIsOnTheDevice(t *testing.T) {
	absurd := sharing.Share{Mode: sharing.HAMiCore, Memory: sharing.MaxBytes, Cores: 1 << 30}
	none := sharingtest.Device(0, "T4", sharing.HAMiCore)
	none.Memory, none.Cores = 0, 0
	many := make([]sharing.Held, 5000)
	for i := range many {
		many[i] = sharing.Held{Owner: sharing.Owner(fmt.Sprint(i)), Share: absurd}
	}
	t4 := sharingtest.Device(1, "T4", sharing.HAMiCore)
	for says, v := range map[string]sharing.View{
		"no memory and no compute": sharing.NewView(&none, nil, factory.New()),
		"absurd shares":            sharing.NewView(&t4, many, factory.New()),
	} {
		for _, name := range policy.Names() {
			p := named(t, name)
			if s := p.Device(&v, absurd.Cost()); s > policy.MaxScore || s < -policy.MaxScore {
				t.Errorf("%s: %s scores a device %d", says, name, s)
			}
			if s := node(p, []sharing.View{v}, &sharing.PodRequest{}); s < 0 || s > 100 {
				t.Errorf("%s: %s scores a node %v", says, name, s)
			}
		}
	}
}

func TestPoliciesDoNotAllocate(t *testing.T) {
	views := []sharing.View{used(0, "A100-80", 10, 10), used(1, "T4", 0)}
	pod := sharingtest.Pod("p", sharingtest.Ask("main", 1000, 0))
	for _, name := range policy.Names() {
		p := named(t, name)
		if n := testing.AllocsPerRun(100, func() { p.Device(&views[0], sharing.Cost{}); node(p, views, pod) }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func TestWhatIsAskedForFillsTheDevice(t *testing.T) {
	v := used(0, "A100-80", 50, 10)
	for says, c := range map[string]sharing.Cost{
		"memory":                     {Memory: sharing.GiB},
		"compute":                    {Cores: 10},
		"as much as is left of both": {Memory: 70 * sharing.GiB, Cores: 50},
	} {
		if b := named(t, "binpack"); b.Device(&v, c) <= b.Device(&v, sharing.Cost{}) {
			t.Errorf("%s: binpack does not prefer the device that is fuller with it", says)
		}
		if s := named(t, "spread"); s.Device(&v, c) >= s.Device(&v, sharing.Cost{}) {
			t.Errorf("%s: spread prefers the device that is fuller with it", says)
		}
	}
	// Half of the memory and all of the compute, in millionths of each.
	if got := named(t, "binpack").Device(&v, sharing.Cost{Memory: 30 * sharing.GiB, Cores: 50}); got != 1_500_000 {
		t.Errorf("a device that becomes three quarters full scores %d", got)
	}
}
