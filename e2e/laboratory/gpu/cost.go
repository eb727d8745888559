// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

// calls are programs that are compared call by call. All run on one CPU, one at a time.
type calls struct {
	names    []string
	sessions []*tenant.Session
}

func (b *bench) openCalls(ctx context.Context, tenants []costTenant) (calls, error) {
	var c calls
	for _, t := range tenants {
		s, _, err := b.open(ctx, t.kind, t.limits)
		if err != nil {
			return c, fmt.Errorf("%s: %w", t.name, err)
		}
		if _, err := s.Ask(ctx, "pin %d", runtime.NumCPU()-1); err != nil {
			return c, err
		}
		c.names, c.sessions = append(c.names, t.name), append(c.sessions, s)
	}
	return c, nil
}

type costTenant struct {
	name   string
	kind   tenant.Kind
	limits tenant.Limits
}

// rounds asks all in turn, many times; the median nanoseconds of each round by name.
// The first round warms up and is not kept. What was measured before an error is kept.
func (b *bench) inRounds(ctx context.Context, c calls, command string, rounds int) (map[string][]float64, error) {
	out := map[string][]float64{}
	for r := range rounds + 1 {
		values := make([]float64, len(c.sessions))
		for i := range c.sessions {
			// The order turns, so that nobody always runs after the same neighbour.
			at := (i + r) % len(c.sessions)
			a, err := c.sessions[at].Ask(ctx, "%s", command)
			if err != nil {
				return out, fmt.Errorf("%s: %w", c.names[at], err)
			}
			if values[at], err = a.Float("median_ns"); err != nil {
				return out, err
			}
		}
		if r > 0 {
			for i, name := range c.names {
				out[name] = append(out[name], values[i])
			}
		}
	}
	return out, nil
}

// Names of the tenants whose calls are compared.
const (
	bareCalls, unlimited, nearlyAll, half = "bare", "unlimited", "99 %", "50 %"
)

func launchTenants() []costTenant {
	return []costTenant{
		{bareCalls, tenant.Bare, tenant.Limits{}},
		{unlimited, tenant.Ours, tenant.Limits{}},
		{nearlyAll, tenant.Ours, tenant.Limits{Cores: 99}},
		{half, tenant.Ours, tenant.Limits{Cores: 50}},
	}
}

// launchCost is experiment 10.
func launchCost(ctx context.Context, b *bench) {
	c, err := b.openCalls(ctx, launchTenants())
	got := map[string][]float64{}
	if err == nil {
		got, err = b.inRounds(ctx, c, fmt.Sprintf("launch %d", b.scale.launches), b.scale.rounds)
	}
	b.costRows(ctx, "driver API", got, err)
	b.row(ctx, "driver API, waiting at 50 %", func() (verdict.Finding, error) {
		if len(got[half]) == 0 && err != nil {
			return verdict.Finding{}, err
		}
		return verdict.Note("bare %.0f ns, at 50 %% %.0f ns; a burst that waits for its share is slower", verdict.Median(got[bareCalls]), verdict.Median(got[half])), nil
	})
	err = b.loadRuntime(ctx, c, err)
	if err == nil {
		got, err = b.inRounds(ctx, c, fmt.Sprintf("runtime-launch %d", b.scale.launches), b.scale.rounds/4)
	} else {
		got = nil
	}
	b.costRows(ctx, "runtime API", got, err)
	b.row(ctx, "cuEventRecord and cuEventQuery", func() (verdict.Finding, error) {
		if len(c.sessions) == 0 {
			return verdict.Finding{}, err
		}
		a, err := c.sessions[0].Ask(ctx, "events %d", 4*b.scale.launches)
		return verdict.Note("record %s ns (best tenth %s), query %s ns, bare", a.Text("record_ns"), a.Text("record_low_ns"), a.Text("query_ns")), err
	})
}

func (b *bench) costRows(ctx context.Context, api string, got map[string][]float64, err error) {
	for _, r := range []struct {
		who   string
		bound float64
	}{{unlimited, b.bounds.UnlimitedNS}, {nearlyAll, b.bounds.LimitedNS}} {
		b.row(ctx, api+", "+r.who, func() (verdict.Finding, error) {
			if len(got[r.who]) == 0 && err != nil {
				return verdict.Finding{}, err
			}
			return verdict.Cost("an empty kernel", r.bound, min(b.scale.repeats, 5), got[bareCalls], got[r.who]), nil
		})
	}
}

// loadRuntime loads the CUDA runtime into every program, the newest that there is.
func (b *bench) loadRuntime(ctx context.Context, c calls, err error) error {
	if err != nil {
		return err
	}
	if b.fake {
		return skip("the CUDA runtime does not start on the fake driver")
	}
	path := newestRuntime("/usr/local/cuda*/lib64/libcudart.so.*", "/usr/local/cuda*/targets/*/lib/libcudart.so.*", "/usr/lib/x86_64-linux-gnu/libcudart.so.*",
		"/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib/libcudart.so.*", "/usr/lib/python3*/site-packages/nvidia/*/lib/libcudart.so.*",
		"/usr/local/lib/python3*/*-packages/nvidia/*/lib/libcudart.so.*")
	if path == "" {
		return skip("no libcudart in the usual places")
	}
	for _, s := range c.sessions {
		if _, err := s.Ask(ctx, "runtime %s", path); err != nil {
			return skip(fmt.Sprintf("%s: %v", path, err))
		}
	}
	return nil
}

// newestRuntime is the file with the highest version of those that match, "" if none.
func newestRuntime(patterns ...string) string {
	var found []string
	for _, p := range patterns {
		paths, _ := filepath.Glob(p) // its only error is a pattern that is none
		found = append(found, paths...)
	}
	if len(found) == 0 {
		return ""
	}
	return slices.MaxFunc(found, func(x, y string) int { return slices.Compare(version(x), version(y)) })
}

// version is the numbers behind ".so." of a file's name.
func version(path string) []int {
	var numbers []int
	n, in := 0, false
	name := filepath.Base(path)
	for _, c := range name + "." {
		switch {
		case c >= '0' && c <= '9':
			n, in = n*10+int(c-'0'), true
		case in:
			numbers, n, in = append(numbers, n), 0, false
		}
	}
	return numbers
}

// allocationCost is experiment 11.
func allocationCost(ctx context.Context, b *bench) {
	b.row(ctx, "1 MiB allocated and freed", func() (verdict.Finding, error) {
		c, err := b.openCalls(ctx, []costTenant{
			{bareCalls, tenant.Bare, tenant.Limits{}}, {unlimited, tenant.Ours, tenant.Limits{Memory: memoryLimit}},
		})
		if err != nil {
			return verdict.Finding{}, err
		}
		got, err := b.inRounds(ctx, c, fmt.Sprintf("pairs %d %d", b.scale.pairs, mib), b.scale.rounds)
		if len(got[unlimited]) == 0 && err != nil {
			return verdict.Finding{}, err
		}
		return verdict.Cost("a pair at 8 GiB", b.bounds.PairNS, min(b.scale.repeats, 5), got[bareCalls], got[unlimited]), nil
	})
}
