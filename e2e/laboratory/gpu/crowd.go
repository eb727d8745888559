// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

const (
	// crowdLimit leaves room for data beside sixteen contexts.
	crowdLimit = 16 * gib
	// grain is what the crowd's processes take at a time.
	grain = 32 * mib
)

// crowd is experiment 6.
func crowd(ctx context.Context, b *bench) {
	b.row(ctx, fmt.Sprintf("%d processes race for memory, half are killed", b.scale.processes), func() (verdict.Finding, error) {
		m, err := b.raced(ctx)
		return verdict.Race(b.bounds, m), err
	})
	b.row(ctx, fmt.Sprintf("start of %d processes at once", b.scale.processes), func() (verdict.Finding, error) {
		bare, ours, err := b.startedTogether(ctx)
		return verdict.Starts(b.bounds, bare, ours), err
	})
}

// gather starts n programs in a tenant at once; how long each took to have a context.
func (b *bench) gather(ctx context.Context, t *tenant.Tenant, n int) ([]*tenant.Session, []float64, error) {
	sessions, took, errs := make([]*tenant.Session, n), make([]float64, n), make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			begin := time.Now()
			sessions[i], _, errs[i] = b.openIn(ctx, t)
			took[i] = time.Since(begin).Seconds()
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, nil, err
		}
	}
	return sessions, took, nil
}

func (b *bench) startedTogether(ctx context.Context) (bare, ours []float64, err error) {
	for range b.scale.starts {
		for _, kind := range []tenant.Kind{tenant.Bare, tenant.Ours} {
			t, err := b.machine.New(kind, tenant.Limits{Memory: crowdLimit, Enter: true})
			if err != nil {
				return nil, nil, err
			}
			sessions, took, err := b.gather(ctx, t, b.scale.processes)
			if err != nil {
				return nil, nil, err
			}
			killAll(sessions)
			if kind == tenant.Bare {
				bare = append(bare, took...)
			} else {
				ours = append(ours, took...)
			}
		}
	}
	return bare, ours, nil
}

// raced lets all processes of a tenant fill it at once, kills half of them, and lets
// one of the others take what they held.
func (b *bench) raced(ctx context.Context) (verdict.Raced, error) {
	m := verdict.Raced{Limit: crowdLimit, Processes: b.scale.processes, Dead: b.scale.processes / 2, Granule: grain}
	idle, _, err := b.onDevice(ctx)
	if err != nil {
		return m, err
	}
	t, err := b.machine.New(tenant.Ours, tenant.Limits{Memory: crowdLimit})
	if err != nil {
		return m, err
	}
	sessions, _, err := b.gather(ctx, t, m.Processes)
	if err != nil {
		return m, err
	}
	got, peak, err := b.fillAll(ctx, sessions, idle)
	if err != nil {
		return m, err
	}
	m.Peak = peak
	survivor := sessions[len(sessions)-1]
	full, err := usedBy(ctx, survivor)
	if err != nil {
		return m, err
	}
	m.Left = crowdLimit - full
	for _, n := range got[:m.Dead] {
		m.Want += n
	}
	killAll(sessions[:m.Dead])
	if m.Freed, err = b.untilFree(ctx, survivor, full-m.Want); err != nil {
		return m, err
	}
	a, err := survivor.Ask(ctx, "fill %d", grain)
	if err != nil {
		return m, err
	}
	m.Again, err = a.Int("bytes")
	return m, err
}

// fillAll lets all fill at once and watches the card meanwhile; what each got, and the
// most that was in use beyond `idle`.
func (b *bench) fillAll(ctx context.Context, sessions []*tenant.Session, idle int64) (got []int64, peak int64, err error) {
	command := fmt.Sprintf("fill %d", grain)
	for _, s := range sessions {
		if err := s.Send(command); err != nil {
			return nil, 0, err
		}
	}
	answers := make(chan error, 1)
	got = make([]int64, len(sessions))
	go func() {
		var first error
		for i, s := range sessions {
			a, err := s.Answer(ctx, command)
			if err == nil {
				got[i], err = a.Int("bytes")
			}
			if first == nil {
				first = err
			}
		}
		answers <- first
	}()
	for {
		used, err := b.cards(ctx, sessions, idle)
		if err != nil {
			return nil, 0, err
		}
		peak = max(peak, used)
		select {
		case err := <-answers:
			used, err2 := b.cards(ctx, sessions, idle)
			if err == nil {
				err = err2
			}
			return got, max(peak, used), err
		default:
		}
	}
}

// cards is what all have taken from the card: the sum of what NVML lists for them, or,
// where it does not list all, what is in use beyond `idle`.
func (b *bench) cards(ctx context.Context, sessions []*tenant.Session, idle int64) (int64, error) {
	used, processes, err := b.onDevice(ctx)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, s := range sessions {
		if processes[s.PID] == 0 {
			return used - idle, nil
		}
		sum += processes[s.PID]
	}
	return sum, nil
}

func usedBy(ctx context.Context, s *tenant.Session) (int64, error) {
	a, err := s.Ask(ctx, "info")
	if err != nil {
		return 0, err
	}
	return a.Int("used")
}

// untilFree waits until a process is told that no more than `want` is in use, for ten
// seconds at most; how long that took.
func (b *bench) untilFree(ctx context.Context, s *tenant.Session, want int64) (time.Duration, error) {
	begin := time.Now()
	for time.Since(begin) < 10*time.Second {
		used, err := usedBy(ctx, s)
		if err != nil {
			return 0, err
		}
		if used <= want {
			return time.Since(begin), nil
		}
	}
	return time.Since(begin), nil
}
