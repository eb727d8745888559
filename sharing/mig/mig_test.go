// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"fmt"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/mig"
	"deviceshare/sharing/sharingtest"
)

func TestTheBackendKeepsItsPromises(t *testing.T) { sharingtest.Backend(t, mig.New()) }

// held makes a view of a device on which other pods hold these places.
func held(t *testing.T, d *sharing.Device, places ...[2]any) sharing.View {
	t.Helper()
	var on []sharing.Held
	for i, place := range places {
		part, ok := mig.At(d.MIG, place[0].(string), place[1].(int))
		if !ok {
			t.Fatalf("%v is no place on %s", place, d.ID)
		}
		on = append(on, sharing.Held{
			Owner: sharing.Owner(fmt.Sprint("other-", i)), Container: "main",
			Share: sharing.Share{Device: d.ID, Mode: sharing.MIG, Partition: part},
		})
	}
	return sharing.NewView(d, on, factory.New())
}

func at(geometry string, position int) [2]any { return [2]any{geometry, position} }

func TestFit(t *testing.T) {
	a100, free := sharingtest.Device(0, "A100-80", sharing.MIG), sharingtest.Free(sharingtest.Device(0, "A100-80", sharing.MIG))
	a30 := sharingtest.Device(0, "A30", sharing.MIG)
	modest := listing(a30, of("less", sharing.GeometryEntry{Profile: "1g.6gb", Memory: sharing.MiBs(5000), Count: 4}))
	generous := listing(a30, of("more", sharing.GeometryEntry{Profile: "1g.6gb", Memory: sharing.MiBs(7167), Count: 4}))
	mistaken := listing(a30, of("typo", sharing.GeometryEntry{Profile: "1g.6gb", Memory: sharing.MiBs(61440), Count: 4}))
	second := a100
	one := *a100.MIG
	one.Geometries = one.Geometries[1:2]
	second.MIG = &one
	percent := func(p sharing.Percent) sharing.Request {
		return sharing.Request{Container: "main", Count: 1, Memory: sharing.PercentMemory(p)}
	}
	cases := []struct {
		says string
		d    sharing.Device
		used [][2]any
		req  sharing.Request
		want string // "" is refused
	}{
		{"the first geometry with a partition that is large enough", a100, nil, sharingtest.Ask("main", 5000, 0), "1g.10gb@6 group1-6"},
		{"a later geometry if the first has none", a100, nil, sharingtest.Ask("main", 15000, 0), "2g.20gb@0 group2-0"},
		{"the next free position", a100, [][2]any{at("group2", 0)}, sharingtest.Ask("main", 15000, 0), "2g.20gb@2 group2-1"},
		{"the smallest that will do", a100, [][2]any{at("group2", 0)}, sharingtest.Ask("main", 1000, 0), "1g.10gb@6 group2-3"},
		{"a larger one if the smallest are taken", second, [][2]any{at("group2", 3)}, sharingtest.Ask("main", 1000, 0), "2g.20gb@0 group2-0"},
		{"the first geometry again if what is in use has its place there", a100, [][2]any{at("group2", 3)}, sharingtest.Ask("main", 1000, 0), "1g.10gb@4 group1-4"},
		{"no geometry in which what is in use has no place", a100, [][2]any{at("group1", 0)}, sharingtest.Ask("main", 15000, 0), ""},
		{"none when all are taken", a100, [][2]any{at("group3", 0), at("group3", 1)}, sharingtest.Ask("main", 15000, 0), ""},
		{"compute asks for a larger profile", a100, nil, sharingtest.Ask("main", 1000, 28), "2g.20gb@0 group2-0"},
		{"compute no profile but the whole has", a100, nil, sharingtest.Ask("main", 1000, 43), "7g.80gb@0 group4-0"},
		{"all compute", a100, nil, sharingtest.Ask("main", 1000, 100), "7g.80gb@0 group4-0"},
		{"all memory is the largest profile", a100, nil, sharingtest.Ask("main", 0, 0), "7g.80gb@0 group4-0"},
		{"all memory is never a part", a100, [][2]any{at("group3", 0)}, sharingtest.Ask("main", 0, 0), ""},
		{"exactly what the partition has", a100, nil, sharingtest.Ask("main", 9728, 0), "1g.10gb@6 group1-6"},
		{"what its name says", a100, nil, sharingtest.Ask("main", 10240, 0), "1g.10gb@6 group1-6"},
		{"one MiB more", a100, nil, sharingtest.Ask("main", 10241, 0), "2g.20gb@0 group2-0"},
		{"an eighth is one slice of eight", a100, nil, percent(12), "1g.10gb@6 group1-6"},
		{"more than an eighth is two", a100, nil, percent(13), "2g.20gb@0 group2-0"},
		{"half is four slices", a100, nil, percent(50), "3g.40gb@0 group3-0"},
		{"more than half is all", a100, nil, percent(51), "7g.80gb@0 group4-0"},
		{"a quarter of an A30", a30, nil, percent(25), "1g.6gb@0 group1-0"},
		{"what the administrator wrote, where hardware has less", a30, nil, sharingtest.Ask("main", 6144, 0), "1g.6gb@0 group1-0"},
		{"what the administrator wrote, where the name says less", generous, nil, sharingtest.Ask("main", 7167, 0), "1g.6gb@0 more-0"},
		{"a MiB more than that", generous, nil, sharingtest.Ask("main", 7168, 0), ""},
		{"not what the administrator wrote by mistake", mistaken, nil, sharingtest.Ask("main", 6145, 0), ""},
		{"what the name says beside such a mistake", mistaken, nil, sharingtest.Ask("main", 6144, 0), "1g.6gb@0 typo-0"},
		{"of equal memory the one with less compute", listing(a100, of("two", times(1, "4g.40gb"), times(1, "3g.40gb"))), nil, sharingtest.Ask("main", 30000, 0), "3g.40gb@4 two-1"},
		{"what hardware has, where the administrator wrote less", modest, nil, sharingtest.Ask("main", 5836, 0), "1g.6gb@0 less-0"},
		{"the largest by its name", a100, nil, sharingtest.Ask("main", 81920, 0), "7g.80gb@0 group4-0"},
		{"more than the largest", a100, nil, sharingtest.Ask("main", 81921, 0), ""},
		{"free: a small one at the end", free, nil, sharingtest.Ask("main", 1000, 0), "1g.10gb@6 free-6"},
		{"free: the double slice for memory alone", free, nil, sharingtest.Ask("main", 15000, 0), "1g.20gb@6 free-17"},
		{"free: two slices for compute", free, nil, sharingtest.Ask("main", 15000, 20), "2g.20gb@4 free-20"},
		{"free: the half that is left", free, [][2]any{at("free", 20)}, sharingtest.Ask("main", 30000, 0), "3g.40gb@0 free-21"},
		{"free: no half is left", free, [][2]any{at("free", 0), at("free", 6)}, sharingtest.Ask("main", 30000, 0), ""},
		{"free: a larger one when no small one is left", free,
			[][2]any{at("free", 0), at("free", 1), at("free", 2), at("free", 3), at("free", 4), at("free", 5)},
			sharingtest.Ask("main", 15000, 0), "1g.20gb@6 free-17"},
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			v := held(t, &c.d, c.used...)
			share, reason := sharingtest.Fit(mig.New(), &v, &c.req)
			got := ""
			if reason == sharing.Fits {
				p := share.Partition
				got = fmt.Sprintf("%s@%d %s-%d", p.Profile, p.Start, p.Geometry, p.Position)
			} else if reason != sharing.NoPartitionFits {
				t.Errorf("refused with %v", reason)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestTheShareCarriesWhatThePartitionHas(t *testing.T) {
	d := sharingtest.Device(0, "A100-80", sharing.MIG)
	req := sharingtest.Ask("main", 15000, 5)
	v := sharing.NewView(&d, nil, factory.New())
	share, _ := sharingtest.Fit(mig.New(), &v, &req)
	if share.Memory != sharing.MiBs(19968) || share.Cores != 28 || share.Whole {
		t.Errorf("%+v: want 19968 MiB and 2 of 7 compute slices", share)
	}
}

func TestADeviceThatCannotBeCutIsRefused(t *testing.T) {
	t4 := sharingtest.Device(0, "T4", sharing.MIG)
	a100 := sharingtest.Device(0, "A100-80", sharing.MIG)
	broken := a100
	broken.MIG = &sharing.Partitioning{Slices: 8, Profiles: a100.MIG.Profiles, Geometries: []sharing.Geometry{
		{Name: "unknown", Entries: []sharing.GeometryEntry{{Profile: "1g.5gb", Count: 7}}},
		{Name: "impossible", Entries: []sharing.GeometryEntry{{Profile: "1g.10gb", Count: 1}, {Profile: "7g.80gb", Count: 1}}},
	}}
	mixed := []sharing.Held{
		{Owner: "a", Share: sharing.Share{Device: a100.ID, Mode: sharing.MIG, Partition: sharing.Partition{Profile: "1g.10gb", Start: 0, Size: 1, Geometry: "group1"}}},
		{Owner: "b", Share: sharing.Share{Device: a100.ID, Mode: sharing.MIG, Partition: sharing.Partition{Profile: "2g.20gb", Start: 2, Size: 2, Geometry: "group2"}}},
	}
	elsewhere := []sharing.Held{{Owner: "a", Share: sharing.Share{Device: a100.ID, Mode: sharing.MIG, Partition: sharing.Partition{Profile: "2g.20gb", Start: 1, Size: 2, Geometry: "former"}}}}
	stranger := []sharing.Held{{Owner: "a", Share: sharing.Share{Device: a100.ID, Mode: sharing.MIG, Partition: sharing.Partition{Profile: "1g.5gb", Start: 0, Size: 1, Geometry: "group1"}}}}
	beyond := []sharing.Held{{Owner: "a", Share: sharing.Share{Device: a100.ID, Mode: sharing.MIG, Partition: sharing.Partition{Profile: "1g.10gb", Start: 99, Size: 1, Geometry: "group1"}}}}
	whole := []sharing.Held{{Owner: "a", Share: sharing.Share{Device: a100.ID, Mode: sharing.MIG, Memory: sharing.GiB}}}
	unresolved := []sharing.Held{{Owner: "a", Share: sharing.Share{Device: a100.ID, Mode: sharing.MIG, Partition: sharing.Partition{Geometry: "group1", Position: 3}}}}
	free := sharingtest.Free(a100)
	cases := map[string]sharing.View{
		"no partitioning":                               sharing.NewView(&t4, nil, factory.New()),
		"only geometries that cannot be":                sharing.NewView(&broken, nil, factory.New()),
		"partitions no one geometry has":                sharing.NewView(&a100, mixed, factory.New()),
		"a partition nobody can locate":                 sharing.NewView(&a100, unresolved, factory.New()),
		"free, with a partition nobody can locate":      sharing.NewView(&free, unresolved, factory.New()),
		"a share that is no partition":                  sharing.NewView(&a100, whole, factory.New()),
		"free, with a share that is no partition":       sharing.NewView(&free, whole, factory.New()),
		"a partition where no geometry has one":         sharing.NewView(&a100, elsewhere, factory.New()),
		"a partition of a profile the device has not":   sharing.NewView(&a100, stranger, factory.New()),
		"a partition beyond the end":                    sharing.NewView(&a100, beyond, factory.New()),
		"free, with a partition beyond the last of all": sharing.NewView(&free, beyond, factory.New()),
	}
	for says, v := range cases {
		t.Run(says, func(t *testing.T) {
			req := sharingtest.Ask("main", 1000, 0)
			if share, reason := sharingtest.Fit(mig.New(), &v, &req); reason != sharing.NoPartitionFits {
				t.Errorf("%+v, %v", share, reason)
			}
		})
	}
}

// Variants with media engines exist once. Where only they have a start left, at
// most that many are given.
func TestAVariantIsGivenOnlyAsOftenAsTheDeviceAllows(t *testing.T) {
	d := sharingtest.Free(sharingtest.Device(0, "A30", sharing.MIG))
	p := *d.MIG
	p.Profiles = []sharing.Profile{{Name: "1g.6gb+me", Memory: sharing.GiB, Compute: 1, Size: 1, Starts: []int{0, 1, 2, 3}, Max: 1}}
	d.MIG = &p
	req := sharingtest.Ask("main", 100, 0)
	v := sharing.NewView(&d, nil, factory.New())
	first, reason := sharingtest.Fit(mig.New(), &v, &req)
	if reason != sharing.Fits {
		t.Fatal(reason)
	}
	beside := v.After(sharing.App, &first)
	taken := sharing.NewView(&d, []sharing.Held{{Owner: "a", Share: first}}, factory.New())
	for says, v := range map[string]sharing.View{"by another container": beside, "by another pod": taken} {
		if second, reason := sharingtest.Fit(mig.New(), &v, &req); reason == sharing.Fits {
			t.Errorf("taken %s and given again: %+v", says, second)
		}
	}
}

func TestAWireNameLeadsBackToThePlace(t *testing.T) {
	for name, m := range sharingtest.Models() {
		if m.MIG == nil {
			continue
		}
		places := 0
		for _, f := range m.MIG.Profiles {
			places += len(f.Starts)
		}
		seen := map[string]bool{}
		for n := range places {
			part, ok := mig.At(m.MIG, mig.Free, n)
			key := fmt.Sprint(part.Profile, part.Start)
			if !ok || part.Position != n || seen[key] {
				t.Errorf("%s: free-%d is %+v", name, n, part)
			}
			seen[key] = true
		}
		for i := range m.MIG.Geometries {
			g := &m.MIG.Geometries[i]
			parts, err := mig.Layout(m.MIG, g)
			if err != nil {
				t.Fatal(err)
			}
			if part, ok := mig.At(m.MIG, g.Name, len(parts)); ok {
				t.Errorf("%s: %s has %d partitions, and one more is %+v", name, g.Name, len(parts), part)
			}
			for n, part := range parts {
				if got, ok := mig.At(m.MIG, g.Name, n); !ok || got != part {
					t.Errorf("%s: %s-%d is %+v, want %+v", name, g.Name, n, got, part)
				}
			}
		}
		for _, wrong := range [][2]any{at(mig.Free, places), at(mig.Free, -1), at("group1", 99), at("group1", -1), at("nobody", 0)} {
			if part, ok := mig.At(m.MIG, wrong[0].(string), wrong[1].(int)); ok {
				t.Errorf("%s: %v is %+v", name, wrong, part)
			}
		}
	}
}

func BenchmarkFit(b *testing.B) {
	listed := sharingtest.Device(0, "A100-80", sharing.MIG)
	free := sharingtest.Free(listed)
	small, medium, large := sharingtest.Ask("main", 5000, 0), sharingtest.Ask("main", 15000, 0), sharingtest.Ask("main", 82000, 0)
	for _, c := range []struct {
		says string
		d    sharing.Device
	}{
		{"geometries", listed}, {"free", free}, {"best-fit of geometries", sharingtest.BestFit(listed)}, {"best-fit", sharingtest.BestFit(free)},
	} {
		for _, req := range []struct {
			says string
			req  *sharing.Request
			want sharing.Reason
		}{{"1g", &small, sharing.Fits}, {"2g", &medium, sharing.Fits}, {"refuse", &large, sharing.NoPartitionFits}} {
			b.Run(c.says+"/"+req.says, func(b *testing.B) {
				v := sharing.NewView(&c.d, nil, factory.New())
				b.ReportAllocs()
				for b.Loop() {
					if _, reason := mig.New().Fit(&v, req.req); reason != req.want {
						b.Fatal(reason)
					}
				}
			})
		}
	}
}
