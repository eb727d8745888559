// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"deviceshare/e2e/laboratory/gpu/tenant"
)

// start starts a program that the end of the experiment ends.
func (b *bench) start(ctx context.Context, t *tenant.Tenant, program string, args ...string) (*tenant.Session, error) {
	s, err := t.Start(ctx, program, args...)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.sessions = append(b.sessions, s)
	b.mu.Unlock()
	return s, nil
}

// open makes a tenant and starts cudaload in it, with its context made.
func (b *bench) open(ctx context.Context, kind tenant.Kind, limits tenant.Limits) (*tenant.Session, tenant.Answer, error) {
	t, err := b.machine.New(kind, limits)
	if err != nil {
		return nil, "", err
	}
	return b.openIn(ctx, t)
}

func (b *bench) openIn(ctx context.Context, t *tenant.Tenant) (*tenant.Session, tenant.Answer, error) {
	s, err := b.start(ctx, t, b.load, b.machine.UUID)
	if err != nil {
		return nil, "", err
	}
	info, err := s.Ask(ctx, "info")
	return s, info, err
}

// openTorch is open for the PyTorch program.
func (b *bench) openTorch(ctx context.Context, kind tenant.Kind, limits tenant.Limits) (*tenant.Session, error) {
	if err := b.torch(ctx); err != nil {
		return nil, err
	}
	t, err := b.machine.New(kind, limits)
	if err != nil {
		return nil, err
	}
	return b.start(ctx, t, "python3", b.script)
}

// torch is nil where PyTorch works here, and a skip otherwise.
func (b *bench) torch(ctx context.Context) error {
	if !errors.Is(b.noTorch, errUnknown) {
		return b.noTorch
	}
	b.say("looking for PyTorch")
	bare, err := b.machine.New(tenant.Bare, tenant.Limits{})
	if err == nil {
		_, err = bare.Run(ctx, "python3", "-c", "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 'it sees no device')")
	}
	b.noTorch = nil
	if err != nil {
		b.noTorch = skip("no PyTorch: " + err.Error())
	}
	return b.noTorch
}

// onDevice is what NVML, asked without the library, says is in use on the device, and
// by whom.
func (b *bench) onDevice(ctx context.Context) (used int64, processes map[int]int64, err error) {
	a, err := b.watcher.Ask(ctx, "nvml")
	if err != nil {
		return 0, nil, fmt.Errorf("watch the device: %w", err)
	}
	used, err = a.Int("used")
	return used, processRows(a), err
}

// card is what a process has taken from the card: what NVML lists for it, or, where
// NVML does not know it by this PID, what is in use beyond `before`.
func (b *bench) card(ctx context.Context, pid int, before int64) (int64, error) {
	used, processes, err := b.onDevice(ctx)
	if bytes := processes[pid]; bytes > 0 {
		return bytes, err
	}
	return used - before, err
}

// processRows reads processes=PID:BYTES,PID:BYTES.
func processRows(a tenant.Answer) map[int]int64 {
	rows := map[int]int64{}
	for _, entry := range strings.Split(a.Text("processes"), ",") {
		pid, bytes, ok := strings.Cut(entry, ":")
		p, err := strconv.Atoi(pid)
		n, err2 := strconv.ParseInt(bytes, 10, 64)
		if ok && err == nil && err2 == nil {
			rows[p] = n
		}
	}
	return rows
}

// ints reads several whole numbers of an answer, in order.
func ints(a tenant.Answer, keys ...string) ([]int64, error) {
	out := make([]int64, len(keys))
	for i, key := range keys {
		n, err := a.Int(key)
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}
