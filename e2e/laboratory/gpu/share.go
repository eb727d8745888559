// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

// workload is a kind of work and the program that knows it. nominal is how many units
// of it a fake device does in a second, by the names of its kernels.
type workload struct {
	kind, name string
	torch      bool
	nominal    float64
}

// workloads are those of the plan: what a limiter finds easy and what it does not.
func workloads() []workload {
	return []workload{
		{"elementwise", "elementwise, 256 MiB", false, 1e6 / 130},
		{"small", "20 µs kernels", false, 1e6 / 20},
		{"graph", "graph of 100 kernels", false, 1e6 / 700},
		{"gemm", "GEMM 8192 fp16, queued", true, 0},
		{"gemm-sync", "GEMM 8192 fp16, each waited for", true, 0},
		{"train", "transformer training step", true, 0},
	}
}

// part is one tenant of a comparison and its programs.
type part struct {
	cores       int // percent; 0: bare
	load, torch *tenant.Session
}

// parts opens a bare tenant and one for each limit, with both programs in each. They
// are neighbours on the named node; without one nothing is borrowed. A missing PyTorch
// is an error of its own and leaves the rest usable.
func (b *bench) parts(ctx context.Context, kind tenant.Kind, node string, limits ...int) (all []part, noTorch, err error) {
	noTorch = b.torch(ctx)
	for _, cores := range append([]int{0}, limits...) {
		p, of := part{cores: cores}, kind
		if cores == 0 {
			of = tenant.Bare
		}
		settings := tenant.Limits{Cores: cores, Library: b.other, Node: node}
		if node == "" {
			settings.Policy = "force"
		}
		if p.load, _, err = b.open(ctx, of, settings); err != nil {
			return nil, noTorch, err
		}
		if err := b.sameKernel(ctx, p.load); err != nil {
			return nil, noTorch, err
		}
		if noTorch == nil { // all start at once: an import takes seconds
			if p.torch, err = b.openTorch(ctx, of, settings); err != nil {
				return nil, noTorch, err
			}
		}
		all = append(all, p)
	}
	return all, noTorch, nil
}

// sameKernel makes a program's small kernel last as long as everybody's. The first one
// asked must be bare: a share would be in what it measures.
func (b *bench) sameKernel(ctx context.Context, s *tenant.Session) error {
	if b.rounds == 0 {
		a, err := s.Ask(ctx, "calibrate 20")
		if err != nil {
			return err
		}
		if b.rounds, err = a.Int("rounds"); err != nil {
			return err
		}
	}
	_, err := s.Ask(ctx, "rounds %d", b.rounds)
	return err
}

func (p part) worker(w workload) *tenant.Session {
	if w.torch {
		return p.torch
	}
	return p.load
}

// seen is one window of work: throughput, and what NVML says of the device meanwhile.
type seen struct{ rate, busy, mhz float64 }

// warm makes every kind of work ready in every part, in all parts at once: what a
// program loads and compiles at first is not to lie in a window.
func warm(ctx context.Context, all []part, kinds []workload) error {
	for _, w := range kinds {
		command := "work " + w.kind + " 0 1"
		var asked []*tenant.Session
		for _, p := range all {
			if s := p.worker(w); s != nil {
				if err := s.Send(command); err != nil {
					return err
				}
				asked = append(asked, s)
			}
		}
		for _, s := range asked {
			if _, err := s.Answer(ctx, command); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure runs one window of work while the watcher looks at its later part: NVML's
// figure is that of some time before.
func (b *bench) measure(ctx context.Context, s *tenant.Session, w workload) (seen, error) {
	settle, window := b.scale.settle.Milliseconds(), b.scale.window.Milliseconds()
	watch := fmt.Sprintf("watch %d %d", window/2, settle+window*4/10)
	if err := b.watcher.Send(watch); err != nil {
		return seen{}, err
	}
	a, err := s.Ask(ctx, "work %s %d %d", w.kind, settle, window)
	saw, watchErr := b.watcher.Answer(ctx, watch)
	if err != nil {
		return seen{}, err
	}
	var out seen
	if out.rate, err = a.Float("rate"); err != nil {
		return seen{}, err
	}
	if watchErr == nil && !b.fake { // without NVML throughput alone is judged
		out.busy, _ = saw.Float("busy")
		out.mhz, _ = saw.Float("mhz")
	}
	return out, nil
}

// baseline measures what a bare program gets of the whole device. On the fake driver
// that is known, and a busy machine must not make it less.
func (b *bench) baseline(ctx context.Context, s *tenant.Session, w workload) (seen, error) {
	got, err := b.measure(ctx, s, w)
	if b.fake {
		got.rate = max(got.rate, w.nominal)
	}
	return got, err
}

// shares is experiment 7.
func shares(ctx context.Context, b *bench) {
	limits := []int{30, 50, 70}
	all, noTorch, err := b.parts(ctx, tenant.Ours, "", limits...)
	runs := map[string][][]seen{}
	var errTorch error
	if err == nil { // a PyTorch that fails leaves the rest whole
		err = b.interleave(ctx, all, only(workloads(), false), runs)
		errTorch = b.interleave(ctx, all, only(workloads(), true), runs)
	}
	for _, w := range workloads() {
		b.row(context.WithoutCancel(ctx), w.name, func() (verdict.Finding, error) {
			if w.torch && noTorch != nil {
				return verdict.Finding{}, noTorch
			}
			if failed := errors.Join(err, errTorch); len(runs[w.kind]) == 0 && failed != nil {
				return verdict.Finding{}, failed
			}
			return verdict.Share(b.bounds, b.scale.repeats, shared(limits, runs[w.kind])), nil
		})
	}
}

// only are the workloads of one of the two programs.
func only(all []workload, torch bool) []workload {
	return slices.DeleteFunc(all, func(w workload) bool { return w.torch != torch })
}

// interleave measures every kind of work in every part, and that so often; runs by
// kind, then round, then part. What was measured before an error stays in runs.
func (b *bench) interleave(ctx context.Context, all []part, kinds []workload, runs map[string][][]seen) error {
	if err := warm(ctx, all, kinds); err != nil {
		return err
	}
	for range b.scale.repeats {
		for _, w := range kinds {
			var round []seen
			for _, p := range all {
				s := p.worker(w)
				if s == nil {
					continue
				}
				how := b.measure
				if p.cores == 0 {
					how = b.baseline
				}
				got, err := how(ctx, s, w)
				if err != nil {
					return err
				}
				b.watched(got.mhz)
				round = append(round, got)
			}
			if len(round) == len(all) {
				runs[w.kind] = append(runs[w.kind], round)
			}
		}
	}
	return nil
}

// shared puts rounds, of which the first part is bare, into the form that is judged.
func shared(limits []int, rounds [][]seen) []verdict.Shared {
	out := make([]verdict.Shared, len(limits))
	for i, limit := range limits {
		out[i].Limit = limit
		for _, round := range rounds {
			bare, ours := round[0], round[i+1]
			out[i].Ratios = append(out[i].Ratios, verdict.Ratios([]float64{ours.rate}, []float64{bare.rate})...)
			if ours.busy > 0 {
				out[i].Busy = append(out[i].Busy, ours.busy/100)
			}
			if ours.mhz > 0 {
				out[i].Clocks = append(out[i].Clocks, verdict.Ratios([]float64{ours.mhz}, []float64{bare.mhz})...)
			}
		}
	}
	return out
}

// pairs is experiment 8.
func pairs(ctx context.Context, b *bench) {
	all, noTorch, err := b.parts(ctx, tenant.Ours, b.node("pairs"), 30, 70)
	for _, w := range workloads() {
		if w.kind != "elementwise" && w.kind != "small" && w.kind != "gemm" {
			continue
		}
		b.row(ctx, "30 % and 70 %: "+w.name, func() (verdict.Finding, error) {
			if w.torch && noTorch != nil {
				return verdict.Finding{}, noTorch
			}
			if err != nil {
				return verdict.Finding{}, err
			}
			if err := warm(ctx, all, []workload{w}); err != nil {
				return verdict.Finding{}, err
			}
			m := verdict.Paired{Limits: [2]int{30, 70}}
			for range b.scale.repeats {
				if err := b.together(ctx, all, w, &m); err != nil {
					return verdict.Finding{}, err
				}
			}
			return verdict.Pair(b.bounds, b.scale.repeats, m), nil
		})
	}
}

// together measures one alone, then the other two at once.
func (b *bench) together(ctx context.Context, all []part, w workload, m *verdict.Paired) error {
	alone, err := b.baseline(ctx, all[0].worker(w), w)
	if err != nil {
		return err
	}
	// Both settle for longer, so that neither's start lies in the other's window.
	command := fmt.Sprintf("work %s %d %d", w.kind, 2*b.scale.settle.Milliseconds(), b.scale.window.Milliseconds())
	var rates [2]float64
	for _, p := range all[1:] {
		if err := p.worker(w).Send(command); err != nil {
			return err
		}
	}
	for i, p := range all[1:] {
		a, err := p.worker(w).Answer(ctx, command)
		if err != nil {
			return err
		}
		if rates[i], err = a.Float("rate"); err != nil {
			return err
		}
	}
	m.Alone, m.First, m.Second = append(m.Alone, alone.rate), append(m.First, rates[0]), append(m.Second, rates[1])
	return nil
}

// sleep waits for a time that is part of a measurement.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
