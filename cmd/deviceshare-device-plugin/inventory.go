// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	cncf "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/config"
	"deviceshare/config/live"
	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/node"
	"deviceshare/deviceplugin/settings"
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
			if err := o.validateFlags(); err != nil {
				return err
			}
			seen, err := inspectDriver(c.Context(), driver.NewNVML(o.base.Library()), o.base, o.nodeName)
			if err != nil {
				return err
			}
			pretty := json.NewEncoder(c.OutOrStdout())
			pretty.SetIndent("", "  ")
			return pretty.Encode(seen)
		},
	}
}

// inspection is what a driver reports, as people read it.
type inspection struct {
	// DriverEdits bring the driver into a container that gets the first device.
	DriverEdits *specs.ContainerEdits `json:"driverEdits"`
	// Instances are the partitions that exist, whoever made them.
	Instances map[sharing.DeviceID][]driver.Instance `json:"instances"`
	// Inventory is what the node would publish, as its annotation.
	Inventory json.RawMessage `json:"inventory"`
	// Missing are the nodes that containers are meant to get and this machine lacks.
	Missing string `json:"missing,omitempty"`
}

func (i *inspection) NodesMissing(err error) {
	i.Missing = ""
	if err != nil {
		i.Missing = err.Error()
	}
}

// inspectDriver reads a driver once, under the default configuration, and changes nothing.
func inspectDriver(ctx context.Context, gpus driver.Driver, base cdi.Options, nodeName string) (seen inspection, err error) {
	if err := gpus.Open(); err != nil {
		return inspection{}, err
	}
	defer func() { err = errors.Join(err, gpus.Close()) }()
	found, err := driver.Scan(gpus)
	if err != nil {
		return inspection{}, err
	}
	a := agent.New(node.Config{Node: nodeName}, nil)
	a.Send(settings.Event(live.Value{Device: config.DefaultDevice()}, nodeName))
	a.Send(node.Scanned{Devices: found})
	inv := a.State().Inventory()
	text, err := wire.EncodeInventory(inv)
	if err != nil {
		return inspection{}, fmt.Errorf("write the inventory of node %s: %w", nodeName, err)
	}
	seen.Inventory = json.RawMessage(text)
	if seen.DriverEdits, err = seen.firstEdits(ctx, gpus, base, a, &inv); err != nil {
		return inspection{}, err
	}
	seen.Instances, err = listPartitions(gpus, found)
	return seen, err
}

func listPartitions(gpus driver.Partitions, found []node.Facts) (map[sharing.DeviceID][]driver.Instance, error) {
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

// firstEdits are the edits of a container that gets the first device; nil without one.
func (i *inspection) firstEdits(ctx context.Context, gpus driver.Driver, base cdi.Options, a *agent.Agent, inv *sharing.Inventory) (*specs.ContainerEdits, error) {
	if len(inv.Devices) == 0 {
		return nil, nil
	}
	edits, _, err := base.NewBase(gpus, a, i)
	if err != nil {
		return nil, err
	}
	common, err := edits.Common(ctx)
	if err != nil {
		return nil, err
	}
	own, err := edits.Edits(ctx, []sharing.DeviceID{inv.Devices[0].ID})
	if err != nil {
		return nil, err
	}
	all := &cncf.ContainerEdits{ContainerEdits: &specs.ContainerEdits{}}
	all.Append(&cncf.ContainerEdits{ContainerEdits: common}).Append(&cncf.ContainerEdits{ContainerEdits: own})
	return all.ContainerEdits, nil
}
