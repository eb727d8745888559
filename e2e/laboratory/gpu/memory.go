// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

// memoryLimit is the limit of most tenants: far below a card, far above a context.
const memoryLimit = 8 * gib

// plainMemory is experiment 1.
func plainMemory(ctx context.Context, b *bench) {
	b.row(ctx, "8 GiB: what is seen", func() (verdict.Finding, error) { return b.seen(ctx) })
	b.row(ctx, "8 GiB: pieces of 2 MiB", func() (verdict.Finding, error) {
		m, err := b.filled(ctx, tenant.Ours, tenant.Limits{Memory: memoryLimit})
		return verdict.Fill(b.bounds, m), err
	})
	b.row(ctx, "odd sizes, 1000 × 4 KiB", func() (verdict.Finding, error) { return b.counted(ctx) })
	b.row(ctx, "ways in", func() (verdict.Finding, error) { return b.refusedBy(ctx, "via", "link", "dlsym", "getproc") })
	b.row(ctx, "kinds of memory", func() (verdict.Finding, error) {
		return b.refusedBy(ctx, "kind", "alloc-async", "alloc-managed", "alloc-pitch")
	})
	b.row(ctx, "environment against file", func() (verdict.Finding, error) { return b.overridden(ctx) })
}

func (b *bench) seen(ctx context.Context) (verdict.Finding, error) {
	s, info, err := b.open(ctx, tenant.Ours, tenant.Limits{Memory: memoryLimit})
	if err != nil {
		return verdict.Finding{}, err
	}
	cuda, err := ints(info, "total", "meminfo_total")
	if err != nil {
		return verdict.Finding{}, err
	}
	a, err := s.Ask(ctx, "nvml")
	if err != nil {
		return verdict.Finding{}, err
	}
	nvml, err := a.Int("total")
	return verdict.Sees(memoryLimit, []verdict.Amount{{Name: "cuDeviceTotalMem", Bytes: cuda[0]}, {Name: "cuMemGetInfo", Bytes: cuda[1]}, {Name: "NVML", Bytes: nvml}}), err
}

// filled lets a tenant take pieces of 2 MiB until it is refused.
func (b *bench) filled(ctx context.Context, kind tenant.Kind, limits tenant.Limits) (verdict.Filled, error) {
	before, _, err := b.onDevice(ctx)
	if err != nil {
		return verdict.Filled{}, err
	}
	s, info, err := b.open(ctx, kind, limits)
	if err != nil {
		return verdict.Filled{}, err
	}
	overhead, err := info.Int("used")
	if err != nil {
		return verdict.Filled{}, err
	}
	a, err := s.Ask(ctx, "fill %d", 2*mib)
	if err != nil {
		return verdict.Filled{}, err
	}
	n, err := ints(a, "bytes", "code", "used")
	if err != nil {
		return verdict.Filled{}, err
	}
	really, err := b.card(ctx, s.PID, before)
	s.Kill()
	return verdict.Filled{Limit: limits.Memory, Overhead: overhead, Got: n[0], Code: n[1], Late: n[2] - n[0] - overhead, Really: really}, err
}

// counted compares what the library counts with what the card gives, for sizes
// around the steps of the driver's rule and for many small pieces.
func (b *bench) counted(ctx context.Context) (verdict.Finding, error) {
	before, _, err := b.onDevice(ctx)
	if err != nil {
		return verdict.Finding{}, err
	}
	s, _, err := b.open(ctx, tenant.Ours, tenant.Limits{Memory: memoryLimit})
	if err != nil {
		return verdict.Finding{}, err
	}
	cases := []struct{ bytes, count int64 }{
		{1, 1}, {4 << 10, 1}, {mib - 1, 3}, {mib, 3}, {mib + 1, 3}, {2*mib - 1, 3}, {2 * mib, 3}, {2*mib + 1, 3}, {3*mib + 7, 5},
		{33*mib + 511, 2}, {4 << 10, 1000},
	}
	var counts []verdict.Count
	for _, c := range cases {
		own, truth, err := b.growth(ctx, s, before, fmt.Sprintf("alloc %d %d", c.bytes, c.count))
		if err != nil {
			return verdict.Finding{}, err
		}
		counts = append(counts, verdict.Count{What: fmt.Sprintf("%d × %d bytes", c.count, c.bytes), Own: own, Truth: truth})
		if _, err := s.Ask(ctx, "free"); err != nil {
			return verdict.Finding{}, err
		}
	}
	return verdict.Counts(b.bounds, counts), nil
}

// growth is by how much use grows with a command, by the program's account and the card's.
func (b *bench) growth(ctx context.Context, s *tenant.Session, before int64, command string) (own, truth int64, err error) {
	info, err := s.Ask(ctx, "info")
	if err != nil {
		return 0, 0, err
	}
	own0, err := info.Int("used")
	if err != nil {
		return 0, 0, err
	}
	card0, err := b.card(ctx, s.PID, before)
	if err != nil {
		return 0, 0, err
	}
	a, err := s.Ask(ctx, "%s", command)
	if err != nil {
		return 0, 0, err
	}
	n, err := ints(a, "used", "code")
	if err == nil && n[1] != 0 {
		err = fmt.Errorf("%s: CUDA error %d", command, n[1])
	}
	if err != nil {
		return 0, 0, err
	}
	card1, err := b.card(ctx, s.PID, before)
	return n[0] - own0, card1 - card0, err
}

// refusedBy gives 5 of 8 GiB and refuses 4 more, in each way.
func (b *bench) refusedBy(ctx context.Context, what string, ways ...string) (verdict.Finding, error) {
	var tried []verdict.Tried
	for _, way := range ways {
		var steps []string
		alloc := "alloc"
		if what == "via" {
			steps = []string{"via", way}
		} else {
			alloc = way
		}
		steps = append(steps, alloc, "5120", "expect", "ok", alloc, "4096", "expect", "oom")
		t, err := b.machine.New(tenant.Ours, tenant.Limits{Memory: memoryLimit})
		if err == nil {
			_, err = t.Run(ctx, b.client, steps...)
		}
		tried = append(tried, verdict.Tried{Name: way, Err: err})
	}
	return verdict.Each("each gives 5 of 8 GiB and refuses 4 more", tried), nil
}

func (b *bench) overridden(ctx context.Context) (verdict.Finding, error) {
	if b.noNamespaces != nil {
		return verdict.Finding{}, skip("no limits file here: " + b.noNamespaces.Error())
	}
	t, err := b.machine.New(tenant.Ours, tenant.Limits{Memory: memoryLimit, Env: []string{"CUDA_DEVICE_MEMORY_LIMIT=60g", "CUDA_DEVICE_MEMORY_LIMIT_0=60g"}})
	if err == nil {
		_, err = t.Run(ctx, b.client, "alloc", "9000", "expect", "oom")
	}
	return verdict.Each("the file's 8 GiB hold against 60 GiB in the environment", []verdict.Tried{{Name: "9000 MiB", Err: err}}), nil
}

// pools is experiment 2.
func pools(ctx context.Context, b *bench) {
	for _, kind := range []string{"default", "private"} {
		b.row(ctx, kind+" pool", func() (verdict.Finding, error) {
			m, err := b.pooled(ctx, tenant.Ours, tenant.Limits{Memory: memoryLimit}, kind)
			return verdict.Pooled(b.bounds, m), err
		})
	}
}

func (b *bench) pooled(ctx context.Context, kind tenant.Kind, limits tenant.Limits, pool string) (verdict.Pool, error) {
	idle, _, err := b.onDevice(ctx)
	if err != nil {
		return verdict.Pool{}, err
	}
	s, _, err := b.open(ctx, kind, limits)
	if err != nil {
		return verdict.Pool{}, err
	}
	defer s.Kill()
	m := verdict.Pool{Limit: limits.Memory}
	a, err := s.Ask(ctx, "pool-open %s", pool)
	if err != nil {
		return m, err
	}
	if m.Before, err = a.Int("used"); err != nil {
		return m, err
	}
	if m.CardBefore, err = b.card(ctx, s.PID, idle); err != nil {
		return m, err
	}
	if _, err = s.Ask(ctx, "pool-rounds %d %d", b.scale.poolRounds, 8*mib); err != nil {
		return m, err
	}
	if a, err = s.Ask(ctx, "pool-fill %d", 16*mib); err != nil {
		return m, err
	}
	n, err := ints(a, "bytes", "code", "used")
	if err != nil {
		return m, err
	}
	m.Got, m.Code, m.Full = n[0], n[1], n[2]
	if a, err = s.Ask(ctx, "pool-close"); err != nil {
		return m, err
	}
	if m.After, err = a.Int("used"); err != nil {
		return m, err
	}
	m.CardAfter, err = b.card(ctx, s.PID, idle)
	return m, err
}

// physical is experiment 3.
func physical(ctx context.Context, b *bench) {
	b.row(ctx, "a handle of 512 MiB, released while mapped", func() (verdict.Finding, error) {
		s, _, err := b.open(ctx, tenant.Ours, tenant.Limits{Memory: memoryLimit})
		if err != nil {
			return verdict.Finding{}, err
		}
		a, err := s.Ask(ctx, "physical %d", 512*mib)
		if err != nil {
			return verdict.Finding{}, err
		}
		n, err := ints(a, "bytes", "before", "created", "mapped", "released", "unmapped")
		if err != nil {
			return verdict.Finding{}, err
		}
		return verdict.Handles(verdict.Physical{Bytes: n[0], Before: n[1], Created: n[2], Mapped: n[3], Released: n[4], Unmapped: n[5]}), nil
	})
}
