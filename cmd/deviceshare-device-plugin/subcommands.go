// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/driver"
)

// newInventory is the subcommand that shows what the plugin would publish, and
// what would bring the driver into a container, without a cluster.
func newInventory(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "inventory",
		Short: "Print what the driver reports and what a container would get of it, and change nothing",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validateFlags(); err != nil {
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
