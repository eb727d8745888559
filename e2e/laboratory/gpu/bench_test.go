// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

func found(measured string) func() (verdict.Finding, error) {
	return func() (verdict.Finding, error) {
		return verdict.Finding{Criterion: "c", Measured: measured}, nil
	}
}

// performed runs one experiment on a bench without a machine; its rows as "name result: why".
func performed(ctx context.Context, limit time.Duration, run func(context.Context, *bench)) []string {
	b := &bench{began: time.Now(), patience: time.Second}
	b.perform(ctx, experiment{number: 3, title: "title", limit: limit, run: run})
	var out []string
	for _, r := range b.table() {
		out = append(out, fmt.Sprintf("%d %s %s%s", r.Experiment, r.Name, r.Result, because(r)))
	}
	return out
}

func TestPerform(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	release := make(chan struct{})
	defer close(release)
	const enough, short = time.Minute, 2 * time.Second
	cases := map[string]struct {
		ctx   context.Context
		limit time.Duration
		run   func(context.Context, *bench)
		want  []string
	}{
		"rows in the order they are measured": {t.Context(), enough, func(ctx context.Context, b *bench) {
			b.row(ctx, "a", found("1"))
			b.row(ctx, "b", func() (verdict.Finding, error) { return verdict.Finding{}, skip("no such thing here") })
			b.row(ctx, "c", func() (verdict.Finding, error) { return verdict.Finding{}, errors.New("broken") })
			b.row(ctx, "d", func() (verdict.Finding, error) { return verdict.Note("5"), nil })
		}, []string{"3 a held", "3 b skipped: no such thing here", "3 c missed: broken", "3 d noted"}},
		"what comes after its time is skipped": {t.Context(), short, func(ctx context.Context, b *bench) {
			b.row(ctx, "long", func() (verdict.Finding, error) {
				<-ctx.Done()
				return verdict.Finding{}, fmt.Errorf("ask: %w", ctx.Err())
			})
			b.row(ctx, "next", found("1"))
		}, []string{"3 long missed: its time was up: ask: context deadline exceeded", "3 next skipped: no time was left for it"}},
		"one that hangs is left behind": {t.Context(), short, func(ctx context.Context, b *bench) {
			b.row(ctx, "a", found("1"))
			<-release
		}, []string{"3 a held", "3 title missed: it hangs and was left behind"}},
		"after the whole run's time nothing starts": {over, enough, func(context.Context, *bench) { t.Error("it was started") },
			[]string{"3 title skipped: the time for the whole run was up"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := performed(c.ctx, c.limit, c.run)
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestRowsOfAnExperimentLeftBehindAreDropped(t *testing.T) {
	b := &bench{began: time.Now(), current: 4}
	b.add(3, verdict.Row{Name: "late"})
	b.add(4, verdict.Row{Name: "now"})
	if rows := b.table(); len(rows) != 1 || rows[0].Name != "now" {
		t.Errorf("rows %+v", rows)
	}
}

// tenantOfStandIn is a tenant whose programs find a module in the place of PyTorch.
func tenantOfStandIn(t *testing.T) (context.Context, *tenant.Tenant) {
	t.Helper()
	if missing := tenant.Missing("python3"); missing != "" {
		t.Skip("no", missing)
	}
	bare, err := (&tenant.Machine{Dir: t.TempDir(), Env: []string{"PYTHONPATH=testdata", "PYTHONDONTWRITEBYTECODE=1"}}).New(tenant.Bare, tenant.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx, bare
}

// TestPyTorchProgram runs the program with a module in the place of PyTorch, so that what
// the suite asks of it is answered in words that the suite reads.
func TestPyTorchProgram(t *testing.T) {
	ctx, bare := tenantOfStandIn(t)
	s, err := bare.Start(ctx, "python3", "pytorch_load.py")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	for _, c := range []struct {
		command string
		ints    []string
		texts   map[string]string
	}{
		{"info", []string{"pid", "total", "meminfo_total", "meminfo_free", "used"}, nil},
		{"identity", nil, map[string]string{"name": "Stand-in"}},
		{"fill 32", []string{"used", "reserved"}, map[string]string{"bytes": fmt.Sprint(256 * mib), "blocks": "8", "caught": "OutOfMemoryError", "backend": "native"}},
		{"recover", []string{"used"}, map[string]string{"sum": "1073741824"}},
		{"touch context", []string{"reserved"}, nil},
		{"touch cublas", []string{"reserved"}, nil},
		{"touch cudnn", []string{"reserved"}, nil},
		{"view GPU-1", []string{"total", "used"}, map[string]string{"processes": "7:100,8:0"}},
	} {
		a, err := s.Ask(ctx, "%s", c.command)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if _, err := ints(a, c.ints...); err != nil {
			t.Error(err)
		}
		for key, want := range c.texts {
			if a.Text(key) != want {
				t.Errorf("%s: %s is %q, want %q in %q", c.command, key, a.Text(key), want, a)
			}
		}
	}
	for _, kind := range []string{"gemm", "gemm-sync", "train", "decode"} {
		a, err := s.Ask(ctx, "work %s 1 5", kind)
		if err != nil {
			t.Errorf("%v", err)
		} else if rate, err := a.Float("rate"); err != nil || rate <= 0 {
			t.Errorf("%s: rate of %q: %v", kind, a, err)
		}
	}
	if _, err := s.Ask(ctx, "work no-such-kind 1 5"); err == nil || !strings.Contains(err.Error(), "KeyError") {
		t.Errorf("work that it does not know: %v", err)
	}
}
