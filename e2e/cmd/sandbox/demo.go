// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"deviceshare/e2e/demo"
	"deviceshare/e2e/sandbox"
)

func newDemo() *cobra.Command {
	var f flags
	cmd := &cobra.Command{Use: "demo", Short: "Start a cluster, tell the main job as a story on it, and stop it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if f.opts, err = demo.Options(f.opts); err != nil {
				return err
			}
			o, err := f.options()
			if err != nil {
				return err
			}
			o.Progress = sandbox.TimedProgress(os.Stdout)
			return tell(cmd.Context(), o)
		}}
	f.add(cmd.Flags())
	return cmd
}

// tell owns the cluster for the time of the story, and stops it whatever happens.
func tell(ctx context.Context, o sandbox.Options) (err error) {
	if err := sandbox.Build(ctx, o); err != nil {
		return err
	}
	cluster, err := sandbox.Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		fmt.Println("\nstopping the cluster …")
		err = errors.Join(err, cluster.Stop())
	}()
	return demo.Run(ctx, cluster, os.Stdout)
}
