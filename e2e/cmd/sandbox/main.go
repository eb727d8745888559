// SPDX-License-Identifier: Apache-2.0

// Command sandbox runs a real Kubernetes cluster with Volcano and deviceshare on this machine, with
// fake GPUs.
//
//	sandbox up       build, start in the background, and print how to reach the cluster
//	sandbox demo     start, tell the main job as a story, and stop
//	sandbox status   list the components
//	sandbox down     stop it
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "sandbox: interrupted, everything is stopped")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(1)
	}
}

// newRoot puts the subcommands together.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "sandbox",
		Short:         "A real Kubernetes cluster with Volcano, deviceshare and fake GPUs on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newBuild(), newDemo(), newUp(), newServe(), newStatus(), newDown())
	return root
}
