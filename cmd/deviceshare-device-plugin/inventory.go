// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/config"
	"deviceshare/config/live"
	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// newInventory is the subcommand that shows what the plugin would publish, and
// what would bring the driver into a container, without a cluster.
func newInventory(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "inventory",
		Short: "Print what the driver reports and what a container would get of it, and change nothing",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(o.check()...); err != nil {
				return fmt.Errorf("%w\nsee --help", err)
			}
			return show(c.Context(), c.OutOrStdout(), o)
		},
	}
}

// show reads the driver once, under the default configuration.
func show(ctx context.Context, out io.Writer, o *options) (err error) {
	gpus := driver.NewNVML(o.nvmlLibrary)
	if err := gpus.Open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gpus.Close()) }()
	found, err := driver.Scan(gpus)
	if err != nil {
		return err
	}
	a := agent.New(node.Config{Node: o.nodeName}, nil)
	a.Send(agent.SettingsEvent(live.Value{Device: config.DefaultDevice()}, o.nodeName))
	a.Send(node.Scanned{Devices: found})
	inv := a.State().Inventory()
	text, err := wire.EncodeInventory(inv)
	if err != nil {
		return fmt.Errorf("write the inventory of node %s: %w", o.nodeName, err)
	}
	edits, err := driverEdits(ctx, o, gpus, a, inv)
	if err != nil {
		return err
	}
	instances, err := instances(gpus, found)
	if err != nil {
		return err
	}
	pretty := json.NewEncoder(out)
	pretty.SetIndent("", "  ")
	return pretty.Encode(map[string]any{"inventory": json.RawMessage(text), "driverEdits": edits, "instances": instances})
}

// instances are the partitions that exist, whoever made them.
func instances(gpus driver.Partitions, found []node.Facts) (map[sharing.DeviceID][]driver.Instance, error) {
	all := map[sharing.DeviceID][]driver.Instance{}
	for i := range found {
		if !found[i].MIG.Enabled {
			continue
		}
		list, err := gpus.Instances(found[i].UUID)
		if err != nil {
			return nil, fmt.Errorf("list the partitions of device %s: %w", found[i].UUID, err)
		}
		all[found[i].UUID] = list
	}
	return all, nil
}

// driverEdits are the edits of a container that gets the first device.
func driverEdits(ctx context.Context, o *options, gpus *driver.NVML, a *agent.Agent, inv sharing.Inventory) (*specs.ContainerEdits, error) {
	if len(inv.Devices) == 0 {
		return nil, nil
	}
	base, _, err := o.base.NewBase(gpus, a)
	if err != nil {
		return nil, err
	}
	return base.Edits(ctx, []sharing.DeviceID{inv.Devices[0].ID})
}
