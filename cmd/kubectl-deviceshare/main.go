// SPDX-License-Identifier: Apache-2.0

// Command kubectl-deviceshare shows shared GPUs: kubectl runs it as "kubectl deviceshare". It reads
// the API server, or a file that it captured there, and changes nothing.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// version is what --version answers; a release sets it by the linker.
var version = "unreleased"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	err := command(streams).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "kubectl deviceshare: %v\n", err)
		os.Exit(1)
	}
}
