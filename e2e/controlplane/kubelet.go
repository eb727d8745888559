// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// newKubelet calls kubelet.NewKubeletCommand, which has taken a context since Kubernetes 1.34. This
// program is compiled with other versions too.
func newKubelet(newCommand any) *cobra.Command {
	switch f := newCommand.(type) {
	case func(context.Context) *cobra.Command:
		return f(context.Background())
	case func() *cobra.Command:
		return f()
	default:
		fmt.Fprintf(os.Stderr, "controlplane kubelet: NewKubeletCommand of this Kubernetes is a %T, which is not known here\n", f)
		os.Exit(1)
		return nil
	}
}
