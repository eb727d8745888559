// SPDX-License-Identifier: Apache-2.0

// Command instructions compares how many instructions benchmarks take at another commit and here:
// see package instructions.
//
//	instructions --base COMMIT ./sharing/place
//	instructions --base DIRECTORY --bench 'Predicate|Decision' ./plugins/deviceshare
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"deviceshare/e2e/laboratory/instructions"
)

// counter is what is compared.
type counter struct {
	base, bench string
	// scratch is a directory for binaries and the other commit.
	scratch string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var c counter
	command := &cobra.Command{
		Use: "instructions --base COMMIT PACKAGE...", Short: "Compare how many instructions benchmarks take at another commit and here",
		SilenceUsage: true, SilenceErrors: true, Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, packages []string) error { return c.run(command.Context(), packages) },
	}
	command.Flags().StringVar(&c.base, "base", "", "the commit to compare with, or a directory with its files")
	command.Flags().StringVar(&c.bench, "bench", ".", "which benchmarks, as go test -bench")
	err := command.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "instructions:", err)
		os.Exit(1)
	}
}

func (c *counter) run(ctx context.Context, packages []string) (err error) {
	if c.base == "" {
		return errors.New("--base is missing: name a commit, or a directory with its files")
	}
	if _, err := exec.LookPath("valgrind"); err != nil {
		return errors.New("valgrind is missing: install it (on Debian: apt-get install valgrind)")
	}
	if c.scratch, err = os.MkdirTemp("", "instructions-"); err != nil {
		return err
	}
	defer os.RemoveAll(c.scratch)
	if info, err := os.Stat(c.base); err != nil || !info.IsDir() {
		if err := c.checkOut(ctx); err != nil {
			return err
		}
	}
	var rows []instructions.Row
	for i, p := range packages {
		more, err := c.comparePackage(ctx, i, p)
		rows = append(rows, more...)
		if err != nil {
			fmt.Print(instructions.Table(rows))
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	fmt.Printf("\n%s", instructions.Table(rows))
	return nil
}

// checkOut writes the files of the commit to compare with, and has base name them.
func (c *counter) checkOut(ctx context.Context) error {
	dir := filepath.Join(c.scratch, "base")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	archive := exec.CommandContext(ctx, "sh", "-c", `git archive "$1" | tar -x -C "$2"`, "sh", c.base, dir)
	if out, err := archive.CombinedOutput(); err != nil || len(out) > 0 {
		return fmt.Errorf("get the files of commit %s: %v\n%s", c.base, err, out)
	}
	c.base = dir
	return nil
}

// comparePackage counts the benchmarks that a package has here, at both.
func (c *counter) comparePackage(ctx context.Context, number int, pkg string) (rows []instructions.Row, err error) {
	var binaries [2]string
	directories := [2]string{c.base, "."}
	for i, dir := range directories {
		binaries[i] = filepath.Join(c.scratch, fmt.Sprintf("%d-%d.test", number, i))
		fmt.Printf("building %s in %s\n", pkg, dir)
		build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-extldflags=-Wl,-z,lazy", "-o", binaries[i], pkg)
		build.Dir = dir
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build its tests in %s: %w\n%s", dir, err, out)
		}
	}
	list, err := execute(ctx, filepath.Join(".", pkg), binaries[1], "-test.run=^$", "-test.bench="+c.bench, "-test.benchtime=50ms")
	if err != nil {
		return nil, err
	}
	for _, b := range instructions.ParseList(list) {
		row := instructions.Row{Name: b.Name}
		for i, to := range []*instructions.Estimate{&row.Before, &row.After} {
			if *to, err = c.estimate(ctx, filepath.Join(directories[i], pkg), binaries[i], b); err != nil {
				return rows, err
			}
		}
		fmt.Println(row)
		rows = append(rows, row)
	}
	return rows, nil
}

// estimate returns the instructions of one operation of a benchmark.
func (c *counter) estimate(ctx context.Context, dir, binary string, b instructions.Benchmark) (instructions.Estimate, error) {
	var counts []instructions.Count
	for _, factor := range []int{1, 1, 3} {
		one, err := c.count(ctx, dir, binary, b, factor*b.Operations)
		if err != nil {
			return instructions.Estimate{}, fmt.Errorf("count %s: %w", b.Name, err)
		}
		counts = append(counts, one)
	}
	return instructions.PerOperation(counts[0], counts[1], counts[2]), nil
}

// count runs a benchmark with so many operations.
func (c *counter) count(ctx context.Context, dir, binary string, b instructions.Benchmark, operations int) (instructions.Count, error) {
	log := filepath.Join(c.scratch, "log")
	_, err := execute(ctx, dir, "valgrind", "--tool=cachegrind", "--cache-sim=no", "--branch-sim=no", "--cachegrind-out-file=/dev/null", "--log-file="+log,
		binary, "-test.run=^$", "-test.bench="+b.Pattern(), fmt.Sprintf("-test.benchtime=%dx", operations))
	if err != nil {
		return instructions.Count{}, err
	}
	text, err := os.ReadFile(log)
	if err != nil {
		return instructions.Count{}, err
	}
	n, err := instructions.ParseCount(string(text))
	return instructions.Count{Operations: int64(operations), Instructions: n}, err
}

// execute runs a program of which nothing depends on time: one processor, no garbage collection, no
// preemption. Benchmarks that compare with others do ours only.
func execute(ctx context.Context, dir, program string, arguments ...string) (string, error) {
	c := exec.CommandContext(ctx, program, arguments...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1", "DEVICESHARE_BENCH=ours")
	out, err := c.CombinedOutput()
	if err == nil && !strings.Contains(string(out), "PASS") {
		err = errors.New("did not pass")
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(arguments, " "), err, out)
	}
	return string(out), nil
}
