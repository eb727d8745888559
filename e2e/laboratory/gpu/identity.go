// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
	"deviceshare/e2e/report"
)

// identity is experiment 0.
func identity(ctx context.Context, b *bench) {
	b.row(ctx, "device and memory, by CUDA and NVML", func() (verdict.Finding, error) { return b.sameAnswers(ctx) })
	b.row(ctx, "nvidia-smi", func() (verdict.Finding, error) {
		return b.sameOutput(ctx, "nvidia-smi", "--query-gpu=name,uuid,driver_version,memory.total,pci.bus_id", "--format=csv,noheader")
	})
	b.row(ctx, "a product of matrices by PyTorch", func() (verdict.Finding, error) {
		var answers [2]string
		for i, kind := range []tenant.Kind{tenant.Bare, tenant.Ours} {
			s, err := b.openTorch(ctx, kind, tenant.Limits{None: true})
			if err != nil {
				return verdict.Finding{}, err
			}
			a, err := s.Ask(ctx, "identity")
			if err != nil {
				return verdict.Finding{}, err
			}
			answers[i] = string(a)
		}
		return verdict.Identity([]verdict.Compared{{What: "the device's name and three sums", Bare: answers[0], Ours: answers[1]}}), nil
	})
	b.row(ctx, "the device plugin's inventory", func() (verdict.Finding, error) { return b.inventory(ctx) })
}

func (b *bench) sameAnswers(ctx context.Context) (verdict.Finding, error) {
	var identity, total [2]string
	for i, kind := range []tenant.Kind{tenant.Bare, tenant.Ours} {
		s, _, err := b.open(ctx, kind, tenant.Limits{None: true})
		if err != nil {
			return verdict.Finding{}, err
		}
		a, err := s.Ask(ctx, "identity")
		if err != nil {
			return verdict.Finding{}, err
		}
		identity[i] = string(a)
		if a, err = s.Ask(ctx, "nvml"); err != nil {
			return verdict.Finding{}, err
		}
		total[i] = fmt.Sprint(a.Text("total"), " ", a.Text("name"), " ", a.Text("driver"))
	}
	return verdict.Identity([]verdict.Compared{
		{What: "name, UUID, total and all attributes", Bare: identity[0], Ours: identity[1]},
		{What: "NVML's name, driver and total", Bare: total[0], Ours: total[1]},
	}), nil
}

func (b *bench) sameOutput(ctx context.Context, program string, args ...string) (verdict.Finding, error) {
	if b.fake {
		return verdict.Finding{}, skip("the fake driver has no " + program)
	}
	if _, err := exec.LookPath(program); err != nil {
		return verdict.Finding{}, skip("no " + program)
	}
	var out [2]string
	for i, kind := range []tenant.Kind{tenant.Bare, tenant.Ours} {
		t, err := b.machine.New(kind, tenant.Limits{None: true})
		if err != nil {
			return verdict.Finding{}, err
		}
		if out[i], err = t.Run(ctx, program, args...); err != nil {
			return verdict.Finding{}, err
		}
	}
	return verdict.Identity([]verdict.Compared{{What: strings.TrimSpace(report.Value(args[0], "--query-gpu")), Bare: out[0], Ours: out[1]}}), nil
}
