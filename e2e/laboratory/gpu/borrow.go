// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

// switchOffset is where a monitor writes utilization_switch in the region: HAMi-core's
// layout 1.2. 0: nobody else is active.
const switchOffset = 2008900

// borrowing is experiment 9. In its first row this suite is the monitor; in the second
// nobody is, and the tenants tell each other.
func borrowing(ctx context.Context, b *bench) {
	b.row(ctx, "30 % alone with the switch at 0, then a rival", func() (verdict.Finding, error) { return b.borrowed(ctx, "") })
	b.row(ctx, "30 % beside an idle neighbour, which then works", func() (verdict.Finding, error) {
		if b.noNeighbours != nil {
			return verdict.Finding{}, b.noNeighbours
		}
		return b.borrowed(ctx, b.node("borrowing"))
	})
}

// loan is a tenant that may borrow and the rival that wants its own back.
type loan struct {
	borrower, rival *tenant.Session
	region          string // of the borrower, where a monitor writes; "" without one
}

func (b *bench) borrowed(ctx context.Context, node string) (verdict.Finding, error) {
	m := verdict.Borrowed{Limit: 30}
	bare, _, err := b.open(ctx, tenant.Bare, tenant.Limits{})
	if err != nil {
		return verdict.Finding{}, err
	}
	t, err := b.machine.New(tenant.Ours, tenant.Limits{Cores: m.Limit, Node: node})
	if err != nil {
		return verdict.Finding{}, err
	}
	var l loan
	if node == "" {
		l.region = t.Region()
	}
	if l.borrower, _, err = b.openIn(ctx, t); err != nil {
		return verdict.Finding{}, err
	}
	if l.rival, _, err = b.open(ctx, tenant.Ours, tenant.Limits{Cores: 100 - m.Limit, Node: node}); err != nil {
		return verdict.Finding{}, err
	}
	for _, s := range []*tenant.Session{bare, l.borrower, l.rival} {
		if err := b.sameKernel(ctx, s); err != nil {
			return verdict.Finding{}, err
		}
	}
	for range b.scale.repeats {
		alone, err := b.baseline(ctx, bare, workloads()[1])
		if err != nil {
			return verdict.Finding{}, err
		}
		m.Bare = append(m.Bare, alone.rate)
		trace, err := b.borrow(ctx, l)
		if err != nil {
			return verdict.Finding{}, err
		}
		m.Runs = append(m.Runs, trace)
	}
	return verdict.Borrow(b.bounds, b.scale.repeats, m), nil
}

// borrow traces one tenant while it is alone, and when a rival comes.
func (b *bench) borrow(ctx context.Context, l loan) (verdict.Trace, error) {
	if err := setSwitch(l.region, 0); err != nil {
		return verdict.Trace{}, err
	}
	command := fmt.Sprintf("trace small %d %d", b.scale.trace.Milliseconds(), b.scale.step.Milliseconds())
	if err := l.borrower.Send(command); err != nil {
		return verdict.Trace{}, err
	}
	if err := sleep(ctx, b.scale.trace/2); err != nil {
		return verdict.Trace{}, err
	}
	// It works until the trace is over and a little longer.
	work := fmt.Sprintf("work small 0 %d", (b.scale.trace/2 + b.scale.step).Milliseconds())
	if err := l.rival.Send(work); err != nil {
		return verdict.Trace{}, err
	}
	came := tenant.Clock()
	if err := setSwitch(l.region, 1); err != nil {
		return verdict.Trace{}, err
	}
	a, err := l.borrower.Answer(ctx, command)
	if err != nil {
		return verdict.Trace{}, err
	}
	if _, err := l.rival.Answer(ctx, work); err != nil {
		return verdict.Trace{}, err
	}
	began, err := a.Int("began_ns")
	if err != nil {
		return verdict.Trace{}, err
	}
	windows, err := windowsOf(a.Text("windows"))
	return verdict.Trace{Came: float64(came-began) / 1e9, Windows: windows}, err
}

// windowsOf reads FROM:SECONDS:RATE,...
func windowsOf(text string) ([]verdict.Window, error) {
	var out []verdict.Window
	for _, entry := range strings.Split(text, ",") {
		var n [3]float64
		parts := strings.Split(entry, ":")
		for i := range n {
			var err error
			if len(parts) != len(n) {
				return nil, fmt.Errorf("read window %q: want three numbers", entry)
			}
			if n[i], err = strconv.ParseFloat(parts[i], 64); err != nil {
				return nil, fmt.Errorf("read window %q: %w", entry, err)
			}
		}
		out = append(out, verdict.Window{From: n[0], Seconds: n[1], Rate: n[2]})
	}
	return out, nil
}

// setSwitch writes the word as a monitor does; nothing without one.
func setSwitch(region string, value uint32) error {
	if region == "" {
		return nil
	}
	f, err := os.OpenFile(region, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open the tenant's region as a monitor: %w", err)
	}
	defer f.Close()
	if _, err := f.WriteAt(binary.NativeEndian.AppendUint32(nil, value), switchOffset); err != nil {
		return fmt.Errorf("write the switch: %w", err)
	}
	return nil
}
