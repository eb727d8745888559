// SPDX-License-Identifier: Apache-2.0

// Command kubectl-deviceshare shows shared GPUs: kubectl runs it as "kubectl deviceshare". It reads
// the API server, or a file that it captured there, and changes nothing.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// version is what --version answers; a release sets it by the linker.
var version = "unreleased"

// softLimit is from where on memory is collected more eagerly, at the cost of processor time. What
// a cluster of 5,000 nodes with 80,000 pods needs is below it.
const softLimit = 440 << 20

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(softLimit)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	err := rootCommand(streams).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "kubectl deviceshare: %v\n", err)
		os.Exit(1)
	}
}
