// SPDX-License-Identifier: Apache-2.0

// Command deviceshare-hook is run by the container runtime before a container with a share starts:
// its CDI specification names it. A container whose hook fails does not start.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"deviceshare/deviceplugin/cdi/hook"
)

// version is set by the build.
var version = "dev"

func main() {
	if err := rootCommand(os.Stdin).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "deviceshare-hook:", err)
		os.Exit(1)
	}
}

func rootCommand(state io.Reader) *cobra.Command {
	c := &cobra.Command{
		Use: "deviceshare-hook", Short: "Prepare a container with a share of a GPU", Version: version,
		SilenceErrors: true, SilenceUsage: true,
	}
	var p hook.Preload
	merge := &cobra.Command{
		Use: "merge-preload", Args: cobra.NoArgs,
		Short: "Put what the image preloads by itself behind our library; the OCI state comes on standard input",
		RunE:  func(*cobra.Command, []string) error { return p.Merge(state) },
	}
	merge.Flags().StringVar(&p.Library, "library", "", "our library, as the container sees it")
	merge.Flags().StringVar(&p.File, "file", "", "what the container sees as its /etc/ld.so.preload")
	_ = merge.MarkFlagRequired("library")
	_ = merge.MarkFlagRequired("file")
	c.AddCommand(merge)
	return c
}
