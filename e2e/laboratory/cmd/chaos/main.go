// SPDX-License-Identifier: Apache-2.0

// Command chaos tries to break an installed cluster on this machine: see package chaos.
//
//	chaos --kills 10000             a long run
//	chaos --kills 150 --seed 7      the history of an earlier run again
//
// The exit code is 1 if a promise was broken. The first interrupt ends the run before all kills
// were made, with every check and the figures; the second stops it at once.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"deviceshare/e2e/laboratory/chaos"
	"deviceshare/e2e/sandbox"
)

// errBroken: a promise was broken. The report says which.
var errBroken = errors.New("a promise was broken")

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ends := newInterrupts(func(text string) { fmt.Println(text) })
	go ends.follow(signals)
	if err := newCommand(ends).ExecuteContext(ends.stopped); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func newCommand(ends *interrupts) *cobra.Command {
	o := chaos.Options{}
	c := &cobra.Command{
		Use: "chaos", Short: "Kill, freeze and break the parts of a cluster under load, and look what it breaks",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return run(c.Context(), o, ends) },
	}
	f := c.Flags()
	f.IntVar(&o.Kills, "kills", 150, "how many components are killed")
	f.Uint64Var(&o.Seed, "seed", uint64(time.Now().Unix()), "what is done, and what users order, follows from it")
	f.IntVar(&o.Lanes, "lanes", 12, "how many orders of users are under way at a time")
	f.DurationVar(&o.Patience, "patience", 15*time.Minute, "what is not done after this time counts as stuck")
	return c
}

func run(ctx context.Context, o chaos.Options, ends *interrupts) error {
	o.Progress = sandbox.TimedProgress(os.Stdout)
	options, err := chaos.Cluster(o.Progress).Defaults()
	if err != nil {
		return err
	}
	if err := sandbox.Build(ctx, options); err != nil {
		return fmt.Errorf("build the sandbox: %w", err)
	}
	cluster, err := sandbox.Start(ctx, options)
	if err != nil {
		return fmt.Errorf("start the sandbox: %w", err)
	}
	fmt.Printf("seed %d, %d kills\n", o.Seed, o.Kills)
	o.Enough = ends.enough
	ends.begin()
	report, err := chaos.Run(ctx, cluster, o)
	fmt.Print(report)
	if len(report.Violations) > 0 {
		err = errors.Join(err, errBroken)
	}
	return errors.Join(err, cluster.Stop())
}
