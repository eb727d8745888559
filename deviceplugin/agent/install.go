// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/spf13/cobra"

	"deviceshare/sharing/nodeapi/hostnode"
	"deviceshare/sharing/nodeapi/limitsnode"
)

// InstallLibraryCommand is the subcommand of the pod's init container.
func InstallLibraryCommand(m *Modes) *cobra.Command {
	from := "/opt/deviceshare"
	c := &cobra.Command{
		Use:   "install-library",
		Short: "Copy libvgpu.so from the image to --library-dir of the host, for containers that start from now on",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return limitsnode.InstallLibrary(hostnode.OS{}, from, m.LibraryDir)
		},
	}
	c.Flags().StringVar(&from, "from", from, "directory of the image that holds the libraries")
	return c
}
