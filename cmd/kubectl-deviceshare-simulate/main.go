// SPDX-License-Identifier: Apache-2.0

// Command kubectl-deviceshare-simulate says what the scheduler would do with a captured cluster:
// kubectl runs it as "kubectl deviceshare simulate". It has Volcano's scheduler inside, which is
// why it is a program of its own.
package main

import (
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
)

// version is what --version answers; a release sets it by the linker.
var version = "unreleased"

func main() {
	klog.SetLogger(logr.Discard()) // what matters of it is in the answer
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	if err := rootCommand(streams).Execute(); err != nil {
		fmt.Fprintf(os.Stderr, "kubectl deviceshare simulate: %v\n", err)
		os.Exit(1)
	}
}
