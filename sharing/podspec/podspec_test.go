// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"math"
	"slices"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

type amounts = map[string]int64

const (
	number  = wire.ResourceNumber
	memory  = wire.ResourceMemory
	cores   = wire.ResourceCores
	percent = wire.ResourcePercentage
)

func TestAContainerAsksIfItNamesAnAmountOtherThanZero(t *testing.T) {
	for name, c := range map[string]struct {
		resources amounts
		want      bool
	}{
		"no resources":                      {nil, false},
		"a resource of another vendor":      {amounts{"nvidia.com/gpu": 1}, false},
		"a number":                          {amounts{number: 1}, true},
		"memory alone means one device":     {amounts{memory: 1}, true},
		"cores alone mean one device":       {amounts{cores: 1}, true},
		"a percentage alone":                {amounts{percent: 1}, true},
		"a number of zero is none":          {amounts{number: 0}, false},
		"zero of everything is none":        {amounts{number: 0, memory: 0, cores: 0, percent: 0}, false},
		"memory beside a number of zero":    {amounts{number: 0, memory: 5}, true},
		"a number beside memory of zero":    {amounts{number: 1, memory: 0}, true},
		"a negative number, to be reported": {amounts{number: -1}, true},
		"a negative amount of memory":       {amounts{memory: -1}, true},
		"more than any node has":            {amounts{number: math.MaxInt64}, true},
		"the least that can be written":     {amounts{number: math.MinInt64}, true},
		"a resource without a name":         {amounts{"": 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			asking := podspec.Container{Name: "main", Resources: c.resources}
			if got := podspec.ContainerAsks(&asking, podspec.DefaultNames()); got != c.want {
				t.Errorf("asks: %t, want %t", got, c.want)
			}
			for _, kind := range []sharing.ContainerKind{sharing.App, sharing.Init, sharing.Sidecar} {
				asking.Kind = kind
				p := podspec.Pod{Containers: []podspec.Container{{Name: "plain"}, asking}}
				if got := podspec.Asks(&p, podspec.DefaultNames()); got != c.want {
					t.Errorf("a pod with it as %v container asks: %t, want %t", kind, got, c.want)
				}
			}
			if got := podspec.ContainerAsks(&asking, podspec.Names{}); got {
				t.Error("asks although none of the resources exists")
			}
		})
	}
}

func TestNamesCanBeChanged(t *testing.T) {
	names := podspec.Names{Number: "example.com/gpus", Memory: "example.com/memory"}
	asking, before := podspec.Container{Resources: amounts{"example.com/memory": 1}}, podspec.Container{Resources: amounts{number: 1, cores: 1}}
	if !podspec.ContainerAsks(&asking, names) || podspec.ContainerAsks(&before, names) {
		t.Error("the names of before count, or the new ones do not")
	}
	if got := names.Existing(); !slices.Equal(got, []string{"example.com/gpus", "example.com/memory"}) {
		t.Errorf("existing names: %q", got)
	}
	if got := podspec.DefaultNames().Existing(); !slices.Equal(got, []string{number, memory, percent, cores}) {
		t.Errorf("default names: %q", got)
	}
}

func TestWhatAReaderOfPlacementsMustKnow(t *testing.T) {
	for name, c := range map[string]struct {
		resources amounts
		want      wire.ContainerRef
	}{
		"nothing":           {nil, wire.ContainerRef{}},
		"a number":          {amounts{number: 2}, wire.ContainerRef{Asks: true, Count: 2}},
		"number missing":    {amounts{memory: 2}, wire.ContainerRef{Asks: true}},
		"a number of zero":  {amounts{number: 0}, wire.ContainerRef{}},
		"a negative number": {amounts{number: -2}, wire.ContainerRef{Asks: true}},
	} {
		c.want.Name, c.want.Kind = "main", sharing.Sidecar
		got := podspec.Ref(&podspec.Container{Resources: c.resources}, "main", sharing.Sidecar, podspec.DefaultNames())
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestAskingAllocatesNothing(t *testing.T) {
	p := podspec.Pod{Containers: []podspec.Container{{}, {Resources: amounts{"x/y": 1}}, {Resources: amounts{percent: 1}}}}
	if n := testing.AllocsPerRun(100, func() { podspec.Asks(&p, podspec.DefaultNames()) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
