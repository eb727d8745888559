// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing/nodeapi/hostnode"
	"deviceshare/sharing/nodeapi/limitsnode"
)

// newInventory is the subcommand that shows what the plugin would publish, and
// what would bring the driver into a container, without a cluster.
func newInventory(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "inventory",
		Short: "Print what the driver reports and what a container would get of it, and change nothing",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			seen, err := agent.Inspect(c.Context(), driver.NewNVML(o.base.Library()), o.base, o.nodeName)
			if err != nil {
				return err
			}
			pretty := json.NewEncoder(c.OutOrStdout())
			pretty.SetIndent("", "  ")
			return pretty.Encode(seen)
		},
	}
}

// newInstallLibrary is the subcommand of the pod's init container.
func newInstallLibrary(o *options) *cobra.Command {
	from := "/opt/deviceshare"
	c := &cobra.Command{
		Use:   "install-library",
		Short: "Copy libvgpu.so from the image to --library-dir of the host, for containers that start from now on",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return limitsnode.InstallLibrary(hostnode.OS{}, from, o.modes.LibraryDir)
		},
	}
	c.Flags().StringVar(&from, "from", from, "directory of the image that holds the libraries")
	return c
}
