// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

// beside is experiment 13: parts of 1, 2, 4, 7 and 10 with HAMi-core in the library's
// place. Nothing is judged; what fails with it is reported as its result.
func beside(ctx context.Context, b *bench) {
	rows := []struct {
		name    string
		measure func(context.Context, *bench) (verdict.Finding, error)
	}{
		{"8 GiB: pieces of 2 MiB", besideFill},
		{"default pool at 8 GiB", besidePool},
		{"PyTorch filled at 8 GiB", besideTorch},
		{"share of 30 % and 50 %", besideShare},
		{"cost of a launch", besideLaunch},
	}
	for _, r := range rows {
		b.row(ctx, r.name, func() (verdict.Finding, error) {
			if b.other == "" {
				return verdict.Finding{}, skip("no HAMi-core library was named with -hamicore")
			}
			finding, err := r.measure(ctx, b)
			b.endSessions()
			return finding, err
		})
	}
}

// libraries are the two that are compared, with their names.
var libraries = []struct {
	name string
	kind tenant.Kind
}{{"ours", tenant.Ours}, {"HAMi-core", tenant.Other}}

// each measures a text with each library; an error of either is its text.
func each(b *bench, limits tenant.Limits, measure func(tenant.Kind, tenant.Limits) (string, error)) verdict.Finding {
	limits.Library = b.other
	text := ""
	for _, l := range libraries {
		got, err := measure(l.kind, limits)
		if err != nil {
			got = "failed: " + err.Error()
		}
		text += "; " + l.name + ": " + got
	}
	return verdict.Note("%s", text[2:])
}

func besideFill(ctx context.Context, b *bench) (verdict.Finding, error) {
	return each(b, tenant.Limits{Memory: memoryLimit}, func(kind tenant.Kind, limits tenant.Limits) (string, error) {
		m, err := b.filled(ctx, kind, limits)
		return fmt.Sprintf("%d MiB, the card says %d taken", m.Got/mib, m.Really/mib), err
	}), nil
}

func besidePool(ctx context.Context, b *bench) (verdict.Finding, error) {
	return each(b, tenant.Limits{Memory: memoryLimit}, func(kind tenant.Kind, limits tenant.Limits) (string, error) {
		m, err := b.pooled(ctx, kind, limits, "default")
		return fmt.Sprintf("%d MiB, use afterwards %+d MiB", m.Got/mib, (m.After-m.Before)/mib), err
	}), nil
}

func besideTorch(ctx context.Context, b *bench) (verdict.Finding, error) {
	if err := b.torch(ctx); err != nil {
		return verdict.Finding{}, err
	}
	return each(b, tenant.Limits{Memory: memoryLimit}, func(kind tenant.Kind, limits tenant.Limits) (string, error) {
		m, _, err := b.torchFilled(ctx, kind, limits)
		return fmt.Sprintf("%d MiB, the card says %d taken, %s, went on %t", m.Got/mib, m.Card/mib, m.Caught, m.Recovered), err
	}), nil
}

// besideShare runs both libraries in the same rounds.
func besideShare(ctx context.Context, b *bench) (verdict.Finding, error) {
	limits := []int{30, 50}
	kinds := []workload{workloads()[0]}
	ours, noTorch, err := b.parts(ctx, tenant.Ours, "", limits...)
	if err != nil {
		return verdict.Finding{}, err
	}
	theirs, _, err := b.parts(ctx, tenant.Other, "", limits...)
	if err != nil {
		return verdict.Note("HAMi-core failed: %v", err), nil
	}
	if noTorch == nil {
		kinds = append(kinds, workloads()[3])
	}
	runs, all := map[string][][]seen{}, append(ours, theirs[1:]...)
	for _, w := range kinds {
		err = errors.Join(err, b.interleave(ctx, all, []workload{w}, runs))
	}
	text := ""
	for _, w := range kinds {
		all := shared([]int{30, 50, 30, 50}, runs[w.kind])
		for i, limit := range limits {
			text += fmt.Sprintf("; %s at %d %%: ours %.3f, HAMi-core %.3f", w.name, limit, verdict.Median(all[i].Ratios), verdict.Median(all[i+2].Ratios))
		}
	}
	if err != nil {
		text += "; failed: " + err.Error()
	}
	return verdict.Note("%s", text[2:]), nil
}

func besideLaunch(ctx context.Context, b *bench) (verdict.Finding, error) {
	tenants := launchTenants()
	tenants = append(tenants,
		costTenant{"HAMi-core unlimited", tenant.Other, tenant.Limits{Library: b.other}},
		costTenant{"HAMi-core 50 %", tenant.Other, tenant.Limits{Library: b.other, Cores: 50}})
	c, err := b.openCalls(ctx, tenants)
	if err != nil {
		return verdict.Note("failed: %v", err), nil
	}
	got, err := b.inRounds(ctx, c, fmt.Sprintf("launch %d", b.scale.launches), b.scale.rounds/4)
	text := ""
	for _, name := range c.names {
		text += fmt.Sprintf(", %s %.0f ns", name, verdict.Median(got[name]))
	}
	if err != nil {
		text += ", failed: " + err.Error()
	}
	return verdict.Note("%s", text[2:]), nil
}
