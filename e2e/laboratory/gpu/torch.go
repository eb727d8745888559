// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

// allocators are PyTorch's own names for where it gets memory.
var allocators = []struct{ name, configuration, backend string }{
	{"default", "", "native"},
	{"expandable segments", "expandable_segments:True", "native"},
	{"cudaMallocAsync", "backend:cudaMallocAsync", "cudaMallocAsync"},
}

// outOfMemory is experiment 4.
func outOfMemory(ctx context.Context, b *bench) {
	b.row(ctx, "by the driver API: refused, freed, and on", func() (verdict.Finding, error) { return b.refusedAndOn(ctx) })
	var counts []verdict.Count
	for _, a := range allocators {
		b.row(ctx, "PyTorch, "+a.name, func() (verdict.Finding, error) {
			limits := tenant.Limits{Memory: memoryLimit}
			if a.configuration != "" {
				limits.Env = []string{"PYTORCH_CUDA_ALLOC_CONF=" + a.configuration}
			}
			m, own, err := b.torchFilled(ctx, tenant.Ours, limits)
			m.Wanted = a.backend
			if err == nil {
				counts = append(counts, verdict.Count{What: a.name, Own: own, Truth: m.Card})
			}
			return verdict.TorchFills(b.bounds, m), err
		})
	}
	b.row(ctx, "PyTorch full: own count", func() (verdict.Finding, error) {
		if err := b.torch(ctx); err != nil {
			return verdict.Finding{}, err
		}
		return verdict.Counts(b.bounds, counts), nil
	})
	b.row(ctx, "held beyond data, bare", func() (verdict.Finding, error) { return b.beyondData(ctx) })
}

func (b *bench) refusedAndOn(ctx context.Context) (verdict.Finding, error) {
	s, _, err := b.open(ctx, tenant.Ours, tenant.Limits{Memory: memoryLimit})
	if err != nil {
		return verdict.Finding{}, err
	}
	var tried []verdict.Tried
	for _, step := range []struct {
		name, command string
		code          int64
	}{
		{"refused when full", fmt.Sprintf("fill %d", 64*mib), 2}, {"freed", "free", 0}, {"given again", fmt.Sprintf("alloc %d 100", 64*mib), 0},
	} {
		a, err := s.Ask(ctx, "%s", step.command)
		var code int64
		if err == nil {
			code, err = a.Int("code")
		}
		if err == nil && code != step.code {
			err = fmt.Errorf("CUDA error %d, want %d", code, step.code)
		}
		tried = append(tried, verdict.Tried{Name: step.name, Err: err})
	}
	return verdict.Each("CUDA_ERROR_OUT_OF_MEMORY when full; what is freed can be had again", tried), nil
}

// torchFilled fills the tenant with blocks of PyTorch; own is what it is told it uses
// then.
func (b *bench) torchFilled(ctx context.Context, kind tenant.Kind, limits tenant.Limits) (m verdict.Torch, own int64, err error) {
	m.Limit = limits.Memory
	idle, _, err := b.onDevice(ctx)
	if err != nil {
		return m, 0, err
	}
	s, err := b.openTorch(ctx, kind, limits)
	if err != nil {
		return m, 0, err
	}
	defer s.Kill()
	info, err := s.Ask(ctx, "info")
	if err != nil {
		return m, 0, err
	}
	if m.Total, err = info.Int("meminfo_total"); err != nil {
		return m, 0, err
	}
	full, err := s.Ask(ctx, "fill 32")
	if err != nil {
		return m, 0, err
	}
	n, err := ints(full, "bytes", "used")
	if err != nil {
		return m, 0, err
	}
	m.Got, m.Caught, m.Backend = n[0], full.Text("caught"), full.Text("backend")
	if m.Card, err = b.card(ctx, s.PID, idle); err != nil {
		return m, 0, err
	}
	// Its own failure is a miss of "goes on", and the answer says which.
	again, err := s.Ask(ctx, "recover")
	m.Recovered = err == nil && again.Text("sum") == fmt.Sprint(1<<30)
	return m, n[1], nil
}

// beyondData reports what a bare PyTorch process holds that nobody asked for by size.
func (b *bench) beyondData(ctx context.Context) (verdict.Finding, error) {
	idle, _, err := b.onDevice(ctx)
	if err != nil {
		return verdict.Finding{}, err
	}
	s, err := b.openTorch(ctx, tenant.Bare, tenant.Limits{})
	if err != nil {
		return verdict.Finding{}, err
	}
	text := ""
	for _, step := range []struct{ what, name string }{{"context", "context"}, {"cublas", "with cuBLAS"}, {"cudnn", "with cuDNN"}} {
		a, err := s.Ask(ctx, "touch %s", step.what)
		if err != nil {
			return verdict.Finding{}, err
		}
		reserved, err := a.Int("reserved")
		if err != nil {
			return verdict.Finding{}, err
		}
		card, err := b.card(ctx, s.PID, idle)
		if err != nil {
			return verdict.Finding{}, err
		}
		text += fmt.Sprintf(", %s %d MiB", step.name, (card-reserved)/mib)
	}
	return verdict.Note("%s", text[2:]), nil
}

// torchCost is experiment 12.
func torchCost(ctx context.Context, b *bench) {
	kinds := []struct{ kind, name string }{{"train", "transformer training step"}, {"decode", "decode: 400 small kernels and a wait"}}
	var workers [2]*tenant.Session
	var failed error
	for i, kind := range []tenant.Kind{tenant.Bare, tenant.Ours} {
		if workers[i], failed = b.openTorch(ctx, kind, tenant.Limits{Memory: 64 * gib}); failed != nil {
			break
		}
	}
	for _, k := range kinds {
		b.row(ctx, k.name, func() (verdict.Finding, error) {
			if failed != nil {
				return verdict.Finding{}, failed
			}
			bare, ours, err := b.inTurns(ctx, workers, k.kind)
			if len(ours) == 0 && err != nil {
				return verdict.Finding{}, err
			}
			return verdict.Overhead(b.bounds, b.scale.repeats, bare, ours), nil
		})
	}
}

// inTurns measures two workers in turns, the order reversed every time, so that
// whatever drifts hits both.
func (b *bench) inTurns(ctx context.Context, workers [2]*tenant.Session, kind string) (first, second []float64, err error) {
	rates := [2][]float64{}
	for r := range b.scale.repeats + 2 {
		for i := range 2 {
			who := (i + r) % 2
			a, err := workers[who].Ask(ctx, "work %s %d %d", kind, b.scale.settle.Milliseconds(), b.scale.torchWindow.Milliseconds())
			if err != nil {
				return rates[0], rates[1], err
			}
			rate, err := a.Float("rate")
			if err != nil {
				return rates[0], rates[1], err
			}
			rates[who] = append(rates[who], rate)
		}
	}
	return rates[0], rates[1], nil
}
