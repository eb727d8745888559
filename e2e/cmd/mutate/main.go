// SPDX-License-Identifier: Apache-2.0

// Command mutate measures how well the tests of packages guard them: gremlins changes one operator at a time, and a
// test has to notice it.
//
//	mutate sharing/place deviceplugin/node
//
// It runs from the root of the repository and fails if less than 95 % of the mutants of a package are run by a test, or less
// than 95 % of those are noticed. Gremlins works on a copy that the package comment of copy.go describes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// enough is the least percentage of mutants that tests run, and of those that they notice.
const enough = "95"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed := false
	for _, dir := range os.Args[1:] {
		if err := mutate(ctx, dir); err != nil {
			fmt.Fprintf(os.Stderr, "mutate %s: %v\n", dir, err)
			failed = true
		}
		if ctx.Err() != nil {
			break
		}
	}
	if failed {
		os.Exit(1)
	}
}

func mutate(ctx context.Context, dir string) error {
	work, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return fmt.Errorf("make a folder for the copy: %w", err)
	}
	defer os.RemoveAll(work)
	subject, err := copyModule(".", work, dir)
	if err != nil {
		return fmt.Errorf("copy the module to %s: %w", work, err)
	}
	fmt.Println("mutating", dir)
	// The tests of a package run for a moment only: gremlins' own limit, three times that, would end runs that are
	// merely slow to compile, and such a run counts neither as noticed nor as unnoticed.
	c := exec.CommandContext(ctx, "go", "run", "github.com/go-gremlins/gremlins/cmd/gremlins@v0.5.0", "unleash",
		"--workers", "1", "--timeout-coefficient", "150",
		"--threshold-efficacy", enough, "--threshold-mcover", enough, "./"+subject)
	c.Dir, c.Stdout, c.Stderr = work, os.Stdout, os.Stderr
	// Vet is no test, and symbols for a debugger take as long to link as the tests to run.
	c.Env = append(os.Environ(), "GOFLAGS=-vet=off -ldflags=-w")
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	return c.Run()
}
