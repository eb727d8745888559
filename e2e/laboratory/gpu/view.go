// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

// held is what each process of a view has allocated.
const held = 512 * mib

// views is experiment 5.
func views(ctx context.Context, b *bench) {
	t, least, err := b.threeProcesses(ctx)
	b.row(ctx, "NVML, three processes", func() (verdict.Finding, error) {
		if err != nil {
			return verdict.Finding{}, err
		}
		return b.viewByNVML(ctx, t, least)
	})
	b.row(ctx, "nvidia-smi, three processes", func() (verdict.Finding, error) {
		if err != nil {
			return verdict.Finding{}, err
		}
		return b.viewBySMI(ctx, t, least)
	})
	b.row(ctx, "pynvml, three processes", func() (verdict.Finding, error) {
		if noTorch := b.torch(ctx); noTorch != nil {
			return verdict.Finding{}, noTorch
		}
		if err != nil {
			return verdict.Finding{}, err
		}
		return b.viewByPython(ctx, t, least)
	})
	b.row(ctx, "NVML in a PID namespace of its own", func() (verdict.Finding, error) { return b.viewInside(ctx) })
	b.row(ctx, "functions nvidia-smi looks up for processes", func() (verdict.Finding, error) { return b.smiAsks(ctx) })
}

// threeProcesses starts them in one tenant; what each holds at least, by PID.
func (b *bench) threeProcesses(ctx context.Context) (*tenant.Tenant, map[int]int64, error) {
	t, err := b.machine.New(tenant.Ours, tenant.Limits{Memory: memoryLimit})
	if err != nil {
		return nil, nil, err
	}
	least := map[int]int64{}
	for range 3 {
		s, _, err := b.openIn(ctx, t)
		if err != nil {
			return nil, nil, err
		}
		if _, err := s.Ask(ctx, "alloc %d 1", held); err != nil {
			return nil, nil, err
		}
		least[s.PID] = held
	}
	return t, least, nil
}

func viewed(a tenant.Answer) (verdict.Viewed, error) {
	n, err := ints(a, "total", "used")
	if err != nil {
		return verdict.Viewed{}, err
	}
	return verdict.Viewed{Total: n[0], Used: n[1], Rows: processRows(a)}, nil
}

func (b *bench) viewByNVML(ctx context.Context, t *tenant.Tenant, least map[int]int64) (verdict.Finding, error) {
	s, err := b.start(ctx, t, b.load, b.machine.UUID)
	if err != nil {
		return verdict.Finding{}, err
	}
	a, err := s.Ask(ctx, "nvml")
	if err != nil {
		return verdict.Finding{}, err
	}
	v, err := viewed(a)
	return verdict.View(memoryLimit, least, v), err
}

func (b *bench) viewByPython(ctx context.Context, t *tenant.Tenant, least map[int]int64) (verdict.Finding, error) {
	s, err := b.start(ctx, t, "python3", b.script)
	if err != nil {
		return verdict.Finding{}, err
	}
	a, err := s.Ask(ctx, "view %s", b.machine.UUID)
	if err != nil {
		if strings.Contains(err.Error(), "ModuleNotFoundError") {
			return verdict.Finding{}, skip("no pynvml")
		}
		return verdict.Finding{}, err
	}
	v, err := viewed(a)
	return verdict.View(memoryLimit, least, v), err
}

// viewBySMI reads nvidia-smi's two lists, which are in MiB.
func (b *bench) viewBySMI(ctx context.Context, t *tenant.Tenant, least map[int]int64) (verdict.Finding, error) {
	if b.fake {
		return verdict.Finding{}, skip("the fake driver has no nvidia-smi")
	}
	if _, err := exec.LookPath("nvidia-smi"); err != nil {
		return verdict.Finding{}, skip("no nvidia-smi")
	}
	device, err := t.Run(ctx, "nvidia-smi", "-i", b.machine.UUID, "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits")
	if err != nil {
		return verdict.Finding{}, err
	}
	list, err := t.Run(ctx, "nvidia-smi", "-i", b.machine.UUID, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
	if err != nil {
		return verdict.Finding{}, err
	}
	amounts := columns(device)
	if len(amounts) != 1 {
		return verdict.Finding{}, fmt.Errorf("nvidia-smi says %q of the device", strings.TrimSpace(device))
	}
	v := verdict.Viewed{Total: amounts[0][0] * mib, Used: amounts[0][1] * mib, Rows: map[int]int64{}, Rounding: mib}
	for _, row := range columns(list) {
		v.Rows[int(row[0])] = row[1] * mib
	}
	return verdict.View(memoryLimit, least, v), nil
}

// columns reads lines of two whole numbers with a comma between; other lines are
// left out.
func columns(text string) [][2]int64 {
	var rows [][2]int64
	for _, line := range strings.Split(text, "\n") {
		first, second, ok := strings.Cut(line, ",")
		a, err := strconv.ParseInt(strings.TrimSpace(first), 10, 64)
		c, err2 := strconv.ParseInt(strings.TrimSpace(second), 10, 64)
		if ok && err == nil && err2 == nil {
			rows = append(rows, [2]int64{a, c})
		}
	}
	return rows
}

// viewInside asks a process that is the first of its own PID namespace.
func (b *bench) viewInside(ctx context.Context) (verdict.Finding, error) {
	if b.noNamespaces != nil {
		return verdict.Finding{}, skip("no namespaces: " + b.noNamespaces.Error())
	}
	probe, err := b.machine.New(tenant.Ours, tenant.Limits{Memory: memoryLimit, Processes: true})
	if err != nil {
		return verdict.Finding{}, err
	}
	if _, err := probe.Run(ctx, "true"); err != nil {
		return verdict.Finding{}, skip("no PID namespaces: " + err.Error())
	}
	s, info, err := b.openIn(ctx, probe)
	if err != nil {
		return verdict.Finding{}, err
	}
	pid, err := info.Int("pid")
	if err != nil {
		return verdict.Finding{}, err
	}
	if _, err := s.Ask(ctx, "alloc %d 1", held); err != nil {
		return verdict.Finding{}, err
	}
	a, err := s.Ask(ctx, "nvml")
	if err != nil {
		return verdict.Finding{}, err
	}
	v, err := viewed(a)
	return verdict.View(memoryLimit, map[int]int64{int(pid): held}, v), err
}

var processFunction = regexp.MustCompile(`symbol=(nvml[A-Za-z]*Process[A-Za-z]*(?:_v\d+)?)\b`)

// smiAsks reports which of NVML's functions about processes nvidia-smi resolves: the
// C library can say what it looks up.
func (b *bench) smiAsks(ctx context.Context) (verdict.Finding, error) {
	if b.fake {
		return verdict.Finding{}, skip("the fake driver has no nvidia-smi")
	}
	if _, err := exec.LookPath("nvidia-smi"); err != nil {
		return verdict.Finding{}, skip("no nvidia-smi")
	}
	log := filepath.Join(b.machine.Dir, "symbols")
	bare, err := b.machine.New(tenant.Bare, tenant.Limits{Env: []string{"LD_DEBUG=symbols", "LD_DEBUG_OUTPUT=" + log}})
	if err != nil {
		return verdict.Finding{}, err
	}
	if _, err := bare.Run(ctx, "nvidia-smi"); err != nil {
		return verdict.Finding{}, err
	}
	files, err := filepath.Glob(log + ".*")
	if err != nil || len(files) == 0 {
		return verdict.Finding{}, skip("the C library wrote no log of symbols")
	}
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return verdict.Finding{}, fmt.Errorf("read the log of symbols: %w", err)
		}
		for _, m := range processFunction.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return verdict.Note("none by name: it reaches them in another way"), nil
	}
	return verdict.Note("%s", strings.Join(names, ", ")), nil
}
