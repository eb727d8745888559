// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"deviceshare/e2e/sandbox"
)

// newServe is the background half of up: it owns the cluster until it is told to end.
func newServe() *cobra.Command {
	var f flags
	cmd := &cobra.Command{Use: "serve", Short: "Run the cluster in the foreground until interrupted", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			o.Progress = sandbox.TimedProgress(os.Stdout)
			cluster, err := sandbox.Start(cmd.Context(), o)
			if err != nil {
				return err
			}
			fmt.Println(readyLine)
			<-cmd.Context().Done()
			return cluster.Stop()
		}}
	f.add(cmd.Flags())
	return cmd
}

func newStatus() *cobra.Command {
	var f flags
	cmd := &cobra.Command{Use: "status", Short: "List the components of the running cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			return status(o)
		}}
	f.add(cmd.Flags())
	return cmd
}

// status prints what the owner of the cluster wrote down last.
func status(o sandbox.Options) error {
	if sandbox.Idle(o) == nil {
		return errors.New("no sandbox runs here; start one with `make sandbox`")
	}
	text, err := os.ReadFile(filepath.Join(o.State, "status.json"))
	if errors.Is(err, os.ErrNotExist) {
		return errors.New("the sandbox is just starting or stopping; try again")
	}
	if err != nil {
		return fmt.Errorf("read status: %w", err)
	}
	var all []sandbox.ComponentStatus
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("read status: %w", err)
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "COMPONENT\tPROCESS\tSTARTS\tLAST EXIT")
	for _, c := range all {
		pid := "-"
		if c.PID != 0 {
			pid = fmt.Sprint(c.PID)
		}
		fmt.Fprintf(out, "%s\t%s\t%d\t%s\n", c.Name, pid, c.Starts, c.LastExit)
	}
	fmt.Fprintf(out, "\nexport KUBECONFIG=%s\n", filepath.Join(o.State, "kubeconfig"))
	return out.Flush()
}

func newDown() *cobra.Command {
	var f flags
	cmd := &cobra.Command{Use: "down", Short: "Stop the cluster and clean up, also after a crash", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			o.Progress = sandbox.TimedProgress(os.Stdout)
			return sandbox.Down(cmd.Context(), o)
		}}
	f.add(cmd.Flags())
	return cmd
}
