// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"strings"
	"testing"
)

// onA is a pod that runs with one share of device a.
func onA(name string, s Share) Pod {
	s.Device = "a"
	if s.Mode == "" {
		s.Mode = "hami-core"
	}
	return Pod{UID: name, Name: "ns/" + name, Holds: true, Initialized: true,
		Containers: []Container{{Name: "main", Kind: App, IDs: []string{"id-" + name}, Shares: []Share{s}}}}
}

// with changes a pod.
func (p Pod) with(change func(*Pod)) Pod {
	change(&p)
	return p
}

func scene(pods ...Pod) Scene {
	s := Scene{Pods: map[string]Pod{}, Offers: map[string]Offer{"a": {Memory: 100, Cores: 100, Shares: 3}}}
	for _, p := range pods {
		s.Pods[p.UID] = p
	}
	return s
}

// uses adds a process of a pod.
func (s Scene) uses(pod string, p Process) Scene {
	p.Pod, p.Container, p.Device = pod, "id-"+pod, "a"
	s.Processes = append(s.Processes, p)
	return s
}

// runs has the pod's container be alive.
func (s Scene) runs(pod string) Scene {
	s.Alive = map[string]bool{"id-" + pod: true}
	return s
}

// has are the driver's partitions.
func (s Scene) has(all ...Partition) Scene {
	s.Partitions = all
	return s
}

// believes is a scheduler's ledger with these pods.
func (s Scene) believes(pods ...Pod) Scene {
	s.Ledger = Ledger{}
	for _, p := range pods {
		s.Ledger[p.UID] = p.holdings()
	}
	return s
}

func TestViolations(t *testing.T) {
	partition := Share{Mode: "mig", Memory: 10, Profile: "1g.10gb", Start: 2, Size: 1}
	waits := func(p *Pod) { p.Initialized = false }
	second := func(kind Kind, memory int64) func(*Pod) {
		return func(p *Pod) {
			p.Containers = append(p.Containers, Container{Name: "second", Kind: kind,
				Shares: []Share{{Device: "a", Mode: "hami-core", Memory: memory}}})
		}
	}
	for name, c := range map[string]struct {
		scene Scene
		want  string // words of the only violation; empty for none
	}{
		"shares that fill a device":                     {scene(onA("x", Share{Memory: 60, Cores: 50}), onA("y", Share{Memory: 40, Cores: 50})), ""},
		"memory that was given twice":                   {scene(onA("x", Share{Memory: 60}), onA("y", Share{Memory: 41})), "101 bytes were given of 100"},
		"compute that was given twice":                  {scene(onA("x", Share{Memory: 1, Cores: 60}), onA("y", Share{Memory: 1, Cores: 41})), "101 % of compute"},
		"more containers than may share":                {scene(onA("1", Share{}), onA("2", Share{}), onA("3", Share{}), onA("4", Share{})), "4 containers have it, 3 may"},
		"a whole device with a neighbour":               {scene(onA("x", Share{Whole: true}), onA("y", Share{Memory: 1})), "has it whole"},
		"a whole device alone":                          {scene(onA("x", Share{Whole: true, Memory: 100, Cores: 100})), ""},
		"two modes on one device":                       {scene(onA("x", Share{Mode: "mps"}), onA("y", Share{})), "in 2 modes at once"},
		"a slice that was given twice":                  {scene(onA("x", partition), onA("y", partition)), "memory slice 2 was given to ns/x/main and ns/y/main"},
		"a pod that has ended":                          {scene(onA("x", Share{Memory: 60}), onA("y", Share{Memory: 60}).with(func(p *Pod) { p.Holds = false })), ""},
		"containers beside each other add up":           {scene(onA("x", Share{Memory: 60}).with(second(App, 41))), "101 bytes"},
		"an init container that has ended":              {scene(onA("x", Share{Memory: 60}).with(second(Init, 100))), ""},
		"while an init container runs its pod's do not": {scene(onA("x", Share{Memory: 60}).with(second(Init, 100)).with(waits), onA("y", Share{Memory: 100})), ""},
		"a sidecar counts while init containers run":    {scene(onA("x", Share{Memory: 60}).with(second(Sidecar, 41)), onA("y", Share{}).with(waits)), "101 bytes"},
		"a device that is gone offers nothing":          {Scene{Pods: map[string]Pod{"x": onA("x", Share{Memory: 1000})}}, ""},

		"memory up to the limit":                        {scene(onA("x", Share{Memory: 60})).uses("x", Process{Memory: 60}), ""},
		"two processes beyond the limit together":       {scene(onA("x", Share{Memory: 60})).uses("x", Process{Memory: 31}).uses("x", Process{Memory: 30}), "has 61 bytes of device a, its limit is 60"},
		"a pod that was deleted and still has too much": {scene(onA("x", Share{Memory: 60}).with(func(p *Pod) { p.Holds = false })).uses("x", Process{Memory: 61}), "its limit is 60"},
		"all memory of a whole device":                  {scene(onA("x", Share{Whole: true, Memory: 1})).uses("x", Process{Memory: 100}), ""},
		"all memory of a partition":                     {scene(onA("x", partition)).uses("x", Process{Memory: 11, Profile: "1g.10gb", Start: 2}), ""},
		"a process of nobody":                           {scene().uses("x", Process{Memory: 1}), "an unknown pod x"},
		"a device of somebody else": {scene(onA("x", Share{}).with(func(p *Pod) { p.Containers[0].Shares[0].Device = "b" })).
			uses("x", Process{}), "uses device a, which it was not given"},
		"a container that the kubelet has not reported": {scene(onA("x", Share{Memory: 60}).with(func(p *Pod) { p.Containers[0].IDs = nil })).
			uses("x", Process{Memory: 61}), "ns/x has 61 bytes"},

		"a partition of two": {scene(onA("x", partition), onA("y", Share{Mode: "mig", Profile: "1g.10gb", Start: 3, Size: 1})).
			uses("x", Process{Profile: "1g.10gb", Start: 2}).uses("y", Process{Profile: "1g.10gb", Start: 2}), "is used by containers id-x and id-y|ns/y works in 1g.10gb at slice 2"},
		"another partition than the one given": {scene(onA("x", partition)).uses("x", Process{Profile: "1g.10gb", Start: 4}), "slice 4 of device a, which it was not given"},
		"two processes in one partition":       {scene(onA("x", partition)).uses("x", Process{Profile: "1g.10gb", Start: 2}).uses("x", Process{Profile: "1g.10gb", Start: 2}), ""},

		"a partition of a container that runs": {scene(onA("x", partition)).runs("x").has(Partition{"a", "1g.10gb", 2}), ""},
		"one that was destroyed":               {scene(onA("x", partition)).runs("x"), "ns/x/main runs, and its 1g.10gb at slice 2 of device a is gone"},
		"one that was made elsewhere":          {scene(onA("x", partition)).runs("x").has(Partition{"a", "1g.10gb", 3}, Partition{"b", "1g.10gb", 2}), "is gone"},
		"one that was made in another size":    {scene(onA("x", partition)).runs("x").has(Partition{"a", "2g.20gb", 2}), "is gone"},
		"one of a container that does not run": {scene(onA("x", partition)), ""},
		"one of a pod that has ended":          {scene(onA("x", partition).with(func(p *Pod) { p.Holds = false })).runs("x"), ""},
		"no partition was given":               {scene(onA("x", Share{})).runs("x"), ""},

		"a scheduler that believes what was given":     {scene(onA("x", partition)).believes(onA("x", partition)), ""},
		"one that believes another amount":             {scene(onA("x", Share{Memory: 1})).believes(onA("x", Share{Memory: 2})), "the scheduler believes that of ns/x"},
		"one that believes another compute":            {scene(onA("x", Share{Cores: 1})).believes(onA("x", Share{Cores: 2})), "the scheduler believes"},
		"one that believes another mode":               {scene(onA("x", Share{})).believes(onA("x", Share{Mode: "mps"})), "the scheduler believes"},
		"one that does not believe in the whole":       {scene(onA("x", Share{Whole: true})).believes(onA("x", Share{})), "the scheduler believes"},
		"one that believes another place":              {scene(onA("x", partition)).believes(onA("x", Share{Mode: "mig", Memory: 10, Profile: "1g.10gb", Start: 3, Size: 1})), "the scheduler believes"},
		"one that believes in one container of two":    {scene(onA("x", Share{}).with(second(App, 1))).believes(onA("x", Share{})), "the scheduler believes"},
		"one that has not heard of a pod":              {scene(onA("x", Share{})).believes(onA("y", Share{})), ""},
		"one that has not heard of the end of a pod":   {scene(onA("x", Share{Memory: 1}).with(func(p *Pod) { p.Holds = false })).believes(onA("x", Share{Memory: 2})), ""},
		"a scheduler that did not answer is not asked": {scene(onA("x", Share{})), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Violations(c.scene)
			var want []string
			if c.want != "" {
				want = strings.Split(c.want, "|")
			}
			if len(got) != len(want) {
				t.Fatalf("got %q, want %q", got, want)
			}
			for i := range want {
				if !strings.Contains(got[i].String(), want[i]) {
					t.Errorf("got %q, want %q", got[i], want[i])
				}
			}
		})
	}
}

// A pod with one share more than fits is found wherever it stands in the list.
func TestOneByteTooMuchIsFoundAmongMany(t *testing.T) {
	s := scene()
	s.Offers["a"] = Offer{Memory: 5050, Cores: 100, Shares: 101}
	for i := range int64(100) {
		p := onA(strings.Repeat("p", int(i)+1), Share{Memory: i + 1})
		s.Pods[p.UID] = p
	}
	if got := Violations(s); len(got) != 0 {
		t.Fatalf("all fit, and got %q", got)
	}
	more := onA("more", Share{Memory: 1})
	s.Pods[more.UID] = more
	if got := Violations(s); len(got) != 1 || got[0].Promise != "shares" {
		t.Errorf("got %q", got)
	}
}

// When nothing happens any more, all that one side knows and the other does not is a difference.
func TestDisagreement(t *testing.T) {
	x, y := onA("x", Share{Memory: 1}), onA("y", Share{Memory: 2})
	ended := y.with(func(p *Pod) { p.Holds = false })
	for name, c := range map[string]struct {
		scene Scene
		want  string
	}{
		"equal":                             {scene(x, y).believes(x, y), ""},
		"equal, with a pod that has ended":  {scene(x, ended).believes(x), ""},
		"both empty":                        {scene().believes(), ""},
		"a pod that the scheduler lost":     {scene(x, y).believes(x), "the scheduler does not know ns/y"},
		"a pod that it keeps after its end": {scene(x, ended).believes(x, y), "which holds nothing"},
		"a pod that the API never knew":     {scene(x).believes(x, y), "which holds nothing"},
		"another amount":                    {scene(x).believes(onA("x", Share{Memory: 3})), "the scheduler believes that of ns/x"},
	} {
		t.Run(name, func(t *testing.T) {
			got := disagreement(c.scene.Pods, c.scene.Ledger)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
