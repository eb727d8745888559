// SPDX-License-Identifier: Apache-2.0

// Command versions runs suites of the installed product on other versions of Kubernetes: see
// package versions.
//
//	versions              every version that is listed
//	versions 1.33 1.35.2  the listed version of 1.33, and another one
//
// The exit code is 1 if a suite did not pass.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"deviceshare/e2e/laboratory/versions"
	"deviceshare/e2e/sandbox"
)

// errNotPassed: a suite did not pass. The table says which.
var errNotPassed = errors.New("not every suite passed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	c := &cobra.Command{
		Use: "versions [VERSION]...", Short: "Run suites of the installed product on other versions of Kubernetes",
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, named []string) error { return run(c.Context(), named) },
	}
	err := c.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1)
	}
}

// run tests one version after the other and shows the table at the end, also of a part of them.
func run(ctx context.Context, named []string) error {
	chosen, err := versions.Choose(named)
	if err != nil {
		return err
	}
	options, err := sandbox.Options{}.Defaults()
	if err != nil {
		return err
	}
	var runs []versions.Run
	for _, version := range chosen {
		fmt.Printf("\n== Kubernetes %s\n", version)
		result, testErr := versions.Test(ctx, options.Repo, version, os.Stdout)
		runs = append(runs, result)
		if testErr != nil {
			err = testErr
			break
		}
		if !result.Passed() {
			err = errNotPassed
		}
	}
	fmt.Printf("\n%s", versions.Table(runs))
	return err
}
