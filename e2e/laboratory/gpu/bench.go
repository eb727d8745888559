// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

//go:embed pytorch_load.py
var torchProgram string

//go:embed decode_loop.py
var decodeProgram string

const (
	mib = int64(1) << 20
	gib = mib << 10
)

// bench is the machine the experiments run on and the table they fill.
type bench struct {
	machine                             *tenant.Machine
	load, client, plugin, other, script string
	decoder                             string // the program that decodes tokens
	scale                               scale
	bounds                              verdict.Bounds
	fake                                bool
	began                               time.Time
	noNamespaces                        error // why not; nil: they work
	noNeighbours                        error // why tenants cannot tell each other of their demand; nil: they can
	noTorch                             error // why not; errUnknown until somebody asked
	watcher                             *tenant.Session
	rounds                              int64 // of the small kernel, as calibrated; 0 until then
	// patience is how long an experiment whose time is up may take to end; one that
	// takes longer hangs in the driver and is left behind.
	patience time.Duration

	mu       sync.Mutex
	current  int // the experiment that may add rows
	rows     []verdict.Row
	sessions []*tenant.Session
	mhz      []float64
}

var errUnknown = errors.New("not yet known")

// skip is the error of what cannot be measured on this machine.
type skip string

func (s skip) Error() string { return string(s) }

// newBench finds programs and device. Errors say what to build or to install.
func newBench(ctx context.Context, o options) (*bench, error) {
	b := &bench{scale: onCard(), bounds: verdict.OnCard(), fake: o.fake, other: o.other, began: time.Now(), noTorch: errUnknown, patience: 8 * time.Second}
	dir, err := os.MkdirTemp("", "gpu-suite-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	b.machine = &tenant.Machine{Dir: dir}
	if err := b.prepare(ctx, o); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) prepare(ctx context.Context, o options) error {
	if o.fake {
		b.scale, b.bounds, b.noTorch = onFake(), verdict.OnFake(), skip("the fake driver runs no PyTorch")
		env, err := fakeMachine(b.machine.Dir)
		if err != nil {
			return err
		}
		b.machine.Env = env
	}
	if err := b.findPrograms(o); err != nil {
		return err
	}
	b.script = filepath.Join(b.machine.Dir, "pytorch_load.py") // not torch.py: that would be what it imports
	b.decoder = filepath.Join(b.machine.Dir, "decode_loop.py")
	for path, text := range map[string]string{b.script: torchProgram, b.decoder: decodeProgram} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write a PyTorch program: %w", err)
		}
	}
	bare, err := b.machine.New(tenant.Bare, tenant.Limits{})
	if err != nil {
		return err
	}
	out, err := bare.Run(ctx, b.client, "info")
	if err != nil {
		return fmt.Errorf("ask the driver for its devices (is there an NVIDIA GPU here?): %w", err)
	}
	if b.machine.UUID = firstUUID(out); b.machine.UUID == "" {
		return fmt.Errorf("the driver shows no device: %s", strings.TrimSpace(out))
	}
	b.noNamespaces = b.machine.Probe(ctx)
	b.noNeighbours = b.neighbourly(ctx)
	b.watcher, err = bare.Start(ctx, b.load, b.machine.UUID)
	return err
}

// neighbourly finds out whether the library knows the word for neighbours: one that does
// not says so when it reads the limits.
func (b *bench) neighbourly(ctx context.Context) error {
	if b.noNamespaces != nil {
		return skip("no namespaces: " + b.noNamespaces.Error())
	}
	t, err := b.machine.New(tenant.Ours, tenant.Limits{Cores: 50, Node: "probe", Env: []string{"LIBCUDA_LOG_LEVEL=2"}})
	if err != nil {
		return err
	}
	out, err := t.Run(ctx, b.client, "info")
	if err == nil && strings.Contains(out, "words of a later version") {
		return skip("this libvgpu.so knows no neighbours")
	}
	return err
}

// node is the group in which tenants of an experiment are neighbours, "" where they
// cannot be.
func (b *bench) node(name string) string {
	if b.noNeighbours != nil {
		return ""
	}
	return name
}

// findPrograms looks in -dir, then where the parts are built.
func (b *bench) findPrograms(o options) error {
	find := func(name string) string {
		for _, dir := range []string{o.dir, "hami-core/build", "e2e/fakegpu/build", "e2e/laboratory/gpu/load/build"} {
			if path, err := filepath.Abs(filepath.Join(dir, name)); err == nil {
				if _, err := os.Stat(path); err == nil {
					return path
				}
			}
		}
		return ""
	}
	b.machine.Library, b.load, b.client = find("libvgpu.so"), find("cudaload"), find("cudaclient")
	b.plugin = find("deviceshare-device-plugin")
	for name, path := range map[string]string{"libvgpu.so": b.machine.Library, "cudaload": b.load, "cudaclient": b.client} {
		if path == "" {
			return fmt.Errorf("no %s in %s: run `make gpu-build` where Go and gcc are, and bring .sandbox/gpu here", name, o.dir)
		}
	}
	return nil
}

func (b *bench) close() {
	if b.watcher != nil {
		b.watcher.Kill()
	}
	_ = os.RemoveAll(b.machine.Dir)
}

// perform runs one experiment within its time, and what is left of the whole's.
func (b *bench) perform(ctx context.Context, e experiment) {
	b.mu.Lock()
	b.current = e.number
	b.mu.Unlock()
	if ctx.Err() != nil {
		b.add(e.number, verdict.Row{Name: e.title, Result: verdict.Skipped, Why: "the time for the whole run was up"})
		return
	}
	b.say("%d %s (at most %.0f s)", e.number, e.title, e.limit.Seconds())
	ctx, cancel := context.WithTimeout(ctx, e.limit)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.run(context.WithValue(ctx, numberKey{}, e.number), b)
		b.endSessions()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(b.patience):
			b.add(e.number, verdict.Row{Name: e.title, Result: verdict.Missed, Why: "it hangs and was left behind"})
		}
	}
}

// numberKey carries the experiment's number to the rows it adds.
type numberKey struct{}

func (b *bench) endSessions() {
	b.mu.Lock()
	ended := b.sessions
	b.sessions = nil
	b.mu.Unlock()
	killAll(ended)
}

// killAll signals all before it waits for any.
func killAll(sessions []*tenant.Session) {
	var wait sync.WaitGroup
	for _, s := range sessions {
		wait.Go(s.Kill)
	}
	wait.Wait()
}

// row measures one line of the table. What fails is missed, with the reason; what
// returns a skip is skipped with it.
func (b *bench) row(ctx context.Context, name string, measure func() (verdict.Finding, error)) {
	number, _ := ctx.Value(numberKey{}).(int)
	if ctx.Err() != nil {
		b.add(number, verdict.Row{Name: name, Result: verdict.Skipped, Why: "no time was left for it"})
		return
	}
	begin := time.Now()
	finding, err := measure()
	row := finding.Row(number, name)
	var why skip
	if err != nil {
		row.Measured = ""
	}
	switch {
	case errors.As(err, &why):
		row.Result, row.Why = verdict.Skipped, string(why)
	case errors.Is(err, context.DeadlineExceeded):
		row.Result, row.Why = verdict.Missed, "its time was up: "+err.Error()
	case err != nil:
		row.Result, row.Why = verdict.Missed, err.Error()
	}
	row.Seconds = time.Since(begin).Seconds()
	b.add(number, row)
}

// add puts a row into the table unless its experiment was left behind.
func (b *bench) add(number int, row verdict.Row) {
	b.mu.Lock()
	row.Experiment = number
	live := number == b.current
	if live {
		b.rows = append(b.rows, row)
	}
	b.mu.Unlock()
	if live {
		b.say("%d %s: %s%s", number, row.Name, row.Result, because(row))
	}
}

func because(row verdict.Row) string {
	if row.Why != "" {
		return ": " + row.Why
	}
	return ""
}

func (b *bench) table() []verdict.Row {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]verdict.Row(nil), b.rows...)
}

func (b *bench) say(format string, args ...any) {
	fmt.Printf("[%5.1f s] %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}
