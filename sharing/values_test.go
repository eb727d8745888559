// SPDX-License-Identifier: Apache-2.0

package sharing_test

import (
	"math"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
)

func TestMemoryResolvesOnTheDevice(t *testing.T) {
	const total = 80 * sharing.GiB
	cases := []struct {
		says  string
		m     sharing.Memory
		total sharing.Bytes
		want  sharing.Bytes
		whole bool
	}{
		{"nothing said is all", sharing.Memory{}, total, total, true},
		{"all", sharing.WholeMemory(), total, total, true},
		{"an amount", sharing.AbsoluteMemory(sharing.GiB), total, sharing.GiB, false},
		{"an amount beyond the device stays", sharing.AbsoluteMemory(2 * total), total, 2 * total, false},
		{"half", sharing.PercentMemory(50), total, 40 * sharing.GiB, false},
		{"a third, in whole MiB and not more", sharing.PercentMemory(33), sharing.MiBs(100), sharing.MiBs(33), false},
		{"100 percent is all", sharing.PercentMemory(100), total, total, true},
		{"a percentage that comes to nothing", sharing.PercentMemory(1), sharing.MiBs(99), 0, false},
		{"a negative amount is nothing and never all", sharing.AbsoluteMemory(-1), total, 0, false},
		{"a negative percentage is nothing and never all", sharing.PercentMemory(-5), total, 0, false},
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			if got := c.m.On(c.total); got != c.want || c.m.Whole() != c.whole {
				t.Errorf("%v, whole %v; want %v, %v", got, c.m.Whole(), c.want, c.whole)
			}
			amount, said := c.m.Absolute()
			percent, relative := c.m.Percent()
			if said && c.m != sharing.AbsoluteMemory(amount) || relative && c.m != sharing.PercentMemory(percent) ||
				!said && !relative && c.want != 0 && c.want != c.total {
				t.Errorf("it says %v, %v and %v%%, %v", amount, said, percent, relative)
			}
		})
	}
}

func TestBytesNeitherWrapNorGoBelowZero(t *testing.T) {
	if got := sharing.MaxBytes.Plus(1); got != sharing.MaxBytes {
		t.Errorf("the largest and one is %d", got)
	}
	if got := (-sharing.MaxBytes).Plus(-5); got != -sharing.MaxBytes {
		t.Errorf("the smallest less five is %d", got)
	}
	if got := sharing.GiB.Less(2 * sharing.GiB); got != 0 {
		t.Errorf("one less two is %d", got)
	}
	if got := (-sharing.GiB).Plus(-sharing.GiB); got != -2*sharing.GiB {
		t.Errorf("two below zero are %d", got)
	}
	if got := sharing.GiB.Less(sharing.GiB - 1); got != 1 {
		t.Errorf("one less almost as much is %d", got)
	}
	const most = int64(sharing.MaxBytes / sharing.MiB)
	for n, want := range map[int64]sharing.Bytes{
		-1: 0, 0: 0, 1: sharing.MiB, most: sharing.MaxBytes - sharing.MiB + 1, most + 1: sharing.MaxBytes, math.MaxInt64: sharing.MaxBytes,
	} {
		if got := sharing.MiBs(n); got != want {
			t.Errorf("%d MiB are %d, want %d", n, got, want)
		}
	}
	for b, want := range map[sharing.Bytes]int64{-1: 0, 0: 0, 1: 1, sharing.MiB: 1, sharing.MiB + 1: 2} {
		if got := b.WholeMiB(); got != want {
			t.Errorf("%d bytes are %d MiB, want %d", b, got, want)
		}
	}
	for b, want := range map[sharing.Bytes]string{0: "0", sharing.GiB: "1GiB", 1536 * sharing.MiB: "1536MiB", 5: "5B"} {
		if got := b.String(); got != want {
			t.Errorf("%d bytes print as %q, want %q", int64(b), got, want)
		}
	}
	if got := sharing.Percent(50).Of(-sharing.GiB); got != 0 {
		t.Errorf("half of less than nothing is %d", got)
	}
	if got := sharing.Percent(math.MaxInt).Of(sharing.MaxBytes); got != sharing.MaxBytes {
		t.Errorf("an absurd percentage is %d", got)
	}
}

func TestPartitionsOverlapWhereTheyShareASlice(t *testing.T) {
	for a := range 8 {
		for n := 1; a+n <= 8; n++ {
			for b := range 8 {
				for m := 1; b+m <= 8; m++ {
					p, q := sharing.Partition{Start: a, Size: n}, sharing.Partition{Start: b, Size: m}
					common := false
					for i := range 8 {
						common = common || i >= a && i < a+n && i >= b && i < b+m
					}
					if p.Overlaps(q) != common {
						t.Errorf("%+v and %+v: %v", p, q, !common)
					}
				}
			}
		}
	}
	one := sharing.Partition{Start: 3, Size: 1}
	for _, absurd := range []sharing.Partition{{Start: -1, Size: 1}, {Size: -1}, {Start: 1000, Size: 1}, {Size: 1 << 40}, {Start: math.MaxInt, Size: 2}} {
		if !absurd.Overlaps(one) {
			t.Errorf("%+v leaves room", absurd)
		}
	}
	if (sharing.Partition{}).Overlaps(one) {
		t.Error("no partition overlaps with one")
	}
}

func TestTheSlicesOfAPartition(t *testing.T) {
	const all = ^uint64(0)
	for p, want := range map[sharing.Partition]uint64{
		{}: 0, {Start: 5}: 0, {Size: 1}: 1, {Start: 2, Size: 3}: 0b11100,
		{Size: 63}: all >> 1, {Start: 1, Size: 63}: all - 1, {Start: 63, Size: 1}: 1 << 63,
		// Places that no device has.
		{Size: 64}: all, {Start: 2, Size: 63}: all, {Start: 64, Size: 1}: all, {Start: 63, Size: 2}: all, {Start: -1, Size: 1}: all, {Size: -1}: all,
	} {
		if got := p.Slices(); got != want {
			t.Errorf("%+v: %b, want %b", p, got, want)
		}
	}
}

func TestThePolicyOfPartitionsIsReadExactly(t *testing.T) {
	for _, p := range sharing.PartitionPolicies() {
		if got, err := sharing.ParsePartitionPolicy(p.String()); err != nil || got != p {
			t.Errorf("%v is read as %v, %v", p, got, err)
		}
	}
	for _, s := range []string{"", "best", "Best-fit", "policy 7"} {
		if got, err := sharing.ParsePartitionPolicy(s); err == nil || !strings.Contains(err.Error(), "first-match, best-fit") {
			t.Errorf("%q is read as %v, %v", s, got, err)
		}
	}
	if got := sharing.PartitionPolicy(7).String(); got != "policy 7" {
		t.Errorf("an unknown one prints as %q", got)
	}
}

func TestAContainerOfAPlacementIsFoundByItsName(t *testing.T) {
	p := sharing.Placement{Containers: []sharing.ContainerShares{{Container: "a"}, {Container: "b"}}}
	if c, ok := p.Container("b"); !ok || c != &p.Containers[1] {
		t.Errorf("%+v, %v", c, ok)
	}
	if c, ok := p.Container("c"); ok || c != nil {
		t.Errorf("%+v, %v", c, ok)
	}
}

// The rows are in the order of the spec: init containers and sidecars, then apps.
func TestWhichContainersOfAPodRunTogether(t *testing.T) {
	const i, s, a = sharing.Init, sharing.Sidecar, sharing.App
	for kinds, want := range map[[2]sharing.ContainerKind]bool{
		{i, i}: false, {i, s}: false, {i, a}: false, {s, i}: true, {s, s}: true, {s, a}: true, {a, a}: true,
	} {
		if got := sharing.Together(kinds[0], kinds[1]); got != want {
			t.Errorf("%v before %v: %v", kinds[0], kinds[1], got)
		}
	}
}

func TestAModeWithoutABackendHasNone(t *testing.T) {
	backends := factory.New()
	for i, b := range backends {
		if got, ok := backends.For(b.Mode()); !ok || got != b || backends.Index(b.Mode()) != i {
			t.Errorf("%s is served by %v, number %d", b.Mode(), got, backends.Index(b.Mode()))
		}
	}
	for _, m := range []sharing.Mode{"", "example.com/halves"} {
		if got, ok := backends.For(m); ok || got != nil || backends.Index(m) != -1 {
			t.Errorf("%q is served by %v, number %d", m, got, backends.Index(m))
		}
	}
}

func TestModesAreReadExactly(t *testing.T) {
	for _, m := range sharing.Modes() {
		if got, err := sharing.ParseMode(string(m)); err != nil || got != m {
			t.Errorf("%q: %q, %v", m, got, err)
		}
	}
	for _, s := range []string{"example.com/halves", "gpu.example.com/x", "a.b/c.d-e", "example.com/" + strings.Repeat("x", 51)} {
		if got, err := sharing.ParseMode(s); err != nil || got != sharing.Mode(s) {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "MIG", "hamicore", " mig", "mps ", "hami-core,mig",
		"example.com", "example.com/", "/halves", "com/halves", "example.com/Halves", "example.com/..", "../x", "a.b/../c",
		"example.com/a/b", "-a.b/c", "a.b-/c", "a.b/-c", "a.b/c-", "a.b/c d", "example.com/" + strings.Repeat("x", 52),
	} {
		if got, err := sharing.ParseMode(s); err == nil || got != "" {
			t.Errorf("%q is read as %q", s, got)
		}
	}
}

func TestRefusalsAreCurableWhenRemovingPodsCouldMakeEnoughDevicesFit(t *testing.T) {
	cases := []struct {
		says          string
		found, wanted int
		reasons       map[sharing.Reason]uint16
		want          bool
	}{
		{"memory is taken", 0, 1, map[sharing.Reason]uint16{sharing.NotEnoughMemory: 1}, true},
		{"broken", 0, 1, map[sharing.Reason]uint16{sharing.Unhealthy: 4}, false},
		{"changing their mode", 0, 1, map[sharing.Reason]uint16{sharing.ChangingMode: 4}, false},
		{"one found, one curable, two wanted", 1, 2, map[sharing.Reason]uint16{sharing.NotEmpty: 1}, true},
		{"one found, none curable, two wanted", 1, 2, map[sharing.Reason]uint16{sharing.WrongMode: 5}, false},
		{"too few in all", 1, 4, map[sharing.Reason]uint16{sharing.HeldExclusively: 2}, false},
	}
	for _, c := range cases {
		r := sharing.Refusals{Found: c.found, Wanted: c.wanted}
		for reason, n := range c.reasons {
			r.Count[reason] = n
		}
		if got := r.Curable(); got != c.want || !r.Refused() {
			t.Errorf("%s: %v", c.says, got)
		}
	}
}
