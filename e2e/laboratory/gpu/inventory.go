// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

// inventory asks the device plugin what it would publish of this machine.
func (b *bench) inventory(ctx context.Context) (verdict.Finding, error) {
	if b.fake {
		return verdict.Finding{}, skip("the sandbox runs the device plugin on the fake driver")
	}
	if b.plugin == "" {
		return verdict.Finding{}, skip("no deviceshare-device-plugin was brought along")
	}
	bare, err := b.machine.New(tenant.Bare, tenant.Limits{})
	if err != nil {
		return verdict.Finding{}, err
	}
	out, err := bare.Run(ctx, b.plugin, "inventory")
	if err != nil {
		return verdict.Finding{}, err
	}
	var got struct {
		Inventory struct {
			Devices []struct {
				UUID   string
				Memory int64
			}
		}
		DriverEdits struct {
			DeviceNodes []struct{ Path string }
			Mounts      []struct{ ContainerPath string }
		}
	}
	begin := strings.Index(out, "{")
	if begin < 0 {
		return verdict.Finding{}, fmt.Errorf("the device plugin prints no inventory: %.200s", out)
	}
	if err := json.NewDecoder(strings.NewReader(out[begin:])).Decode(&got); err != nil {
		return verdict.Finding{}, fmt.Errorf("decode the inventory: %w", err)
	}
	_, info, err := b.open(ctx, tenant.Bare, tenant.Limits{})
	if err != nil {
		return verdict.Finding{}, err
	}
	total, err := info.Int("total")
	if err != nil {
		return verdict.Finding{}, err
	}
	offered := int64(-1)
	for _, d := range got.Inventory.Devices {
		if d.UUID == b.machine.UUID {
			offered = d.Memory
		}
	}
	return verdict.Inventory(verdict.Offered{
		Bytes: offered, Total: total, Nodes: len(got.DriverEdits.DeviceNodes), Files: len(got.DriverEdits.Mounts),
	}), nil
}
