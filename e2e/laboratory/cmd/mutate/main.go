// SPDX-License-Identifier: Apache-2.0

// Command mutate measures how well tests guard the packages that decide. Gremlins changes one
// operator of a package at a time, and a test of that package has to notice.
//
//	mutate sharing/place deviceplugin/node
//
// It runs in the root of the repository. It fails if tests run less than 95 % of the mutants of a
// package, or notice less than 95 % of those that they run.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

const (
	gremlins = "github.com/go-gremlins/gremlins/cmd/gremlins@v0.5.0"
	// enough is the least percentage of mutants that tests run, and of those that they notice.
	enough = "95"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed := false
	for _, dir := range os.Args[1:] {
		if ctx.Err() != nil {
			break
		}
		fmt.Println("mutating", dir)
		if err := mutate(ctx, dir); err != nil {
			fmt.Fprintf(os.Stderr, "mutate %s: %v\n", dir, err)
			failed = true
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
	c := exec.CommandContext(ctx, "go", "run", gremlins, "unleash", "--workers", "1",
		// A run may take this many times as long as the first, in which everything was compiled. A
		// mutant whose run takes longer counts neither as noticed nor as unnoticed.
		"--timeout-coefficient", "20",
		"--threshold-efficacy", enough, "--threshold-mcover", enough, "./"+subject)
	c.Dir, c.Stdout, c.Stderr = work, os.Stdout, os.Stderr
	// Vet is no test. Without symbols for debuggers the tests are linked faster.
	c.Env = append(os.Environ(), "GOFLAGS=-vet=off -ldflags=-w")
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	return c.Run()
}
