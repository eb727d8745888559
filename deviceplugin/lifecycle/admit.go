// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/sharing"
	"deviceshare/sharing/nodeapi"
)

// errNoDevices: the driver has not answered yet.
var errNoDevices = errors.New("the devices of this node are not known yet: the driver does not answer")

// admit decides whether a container may start with its shares, and records that it
// does. The devices of the pod are locked meanwhile: a change of mode that comes
// before is seen here, and one that comes after sees the record.
func (k *Keeper) admit(ctx context.Context, pod *corev1.Pod, c kubelet.Container, slots []string) (nodeapi.Claim, error) {
	terms := k.cfg.Terms()
	records := k.cfg.Store.Of(sharing.Owner(pod.UID))
	inv, err := k.inventory(records)
	if err != nil {
		return nodeapi.Claim{}, err
	}
	placement, err := decision(pod, &inv, terms)
	if err != nil {
		return nodeapi.Claim{}, err
	}
	unlock, err := k.cfg.Locks.Patient(ctx, deviceWait, devicesOf(&placement)...)
	if err != nil {
		return nodeapi.Claim{}, fmt.Errorf("container %s: %w", c.Name, err)
	}
	defer unlock()
	if inv, err = k.inventory(records); err != nil {
		return nodeapi.Claim{}, err
	}
	cl, err := claim(pod, c, slots, &placement, &inv, terms)
	if err != nil {
		return nodeapi.Claim{}, err
	}
	if err = k.works(&cl); err == nil && len(records) == 0 {
		err = k.fresh(&placement, &inv)
	}
	if err != nil {
		return nodeapi.Claim{}, fmt.Errorf("container %s: %w", c.Name, err)
	}
	if _, err := k.preparerOf(&cl); err != nil {
		return nodeapi.Claim{}, err
	}
	return cl, k.cfg.Store.Put(k.recorded(&cl, slots))
}

// deviceWait is how long a start waits for one that has a device, however many have
// it in turn. Looks and starts take moments, unless the driver hangs: then the pod's
// other devices, whose locks are held meanwhile, must not wait with it.
const deviceWait = 5 * time.Second

// devicesOf are the devices of a placement, as keys of their locks.
func devicesOf(p *sharing.Placement) []string {
	var keys []string
	for i := range p.Containers {
		for _, s := range p.Containers[i].Shares {
			keys = append(keys, string(s.Device))
		}
	}
	return keys
}

// inventory is the devices of the node as an owner with these records meets them.
// Today's text says nothing about the mode of a share, it is that of the device.
// All devices of a pod of today's scheduler are in one mode, and for a pod that
// has begun that is the mode it began in.
func (k *Keeper) inventory(records []checkpoint.Record) (sharing.Inventory, error) {
	inv, ready := k.cfg.Inventory()
	if !ready {
		return inv, errNoDevices
	}
	if len(records) == 0 {
		return inv, nil
	}
	inv.Devices = slices.Clone(inv.Devices)
	for i := range inv.Devices {
		inv.Devices[i].Mode = records[0].Mode
	}
	return inv, nil
}

// works refuses devices that do not work, whoever asks.
func (k *Keeper) works(c *nodeapi.Claim) error {
	inv, _ := k.cfg.Working()
	for i := range c.Devices {
		d, ok := inv.Device(c.Devices[i].Device.ID)
		if !ok || !d.Healthy {
			why := ""
			if ok && d.Reason != "" {
				why = " (" + d.Reason + ")"
			}
			id := c.Devices[i].Device
			return fmt.Errorf("device %s (index %d) is broken%s; the container starts when it works again", id.ID, id.Index, why)
		}
	}
	return nil
}

// fresh admits a pod of which nothing has started. As long as it is not known what
// the administrator wants, it is not known either whether the pod has to be placed
// anew, so it waits.
func (k *Keeper) fresh(p *sharing.Placement, inv *sharing.Inventory) error {
	if k.cfg.Hold != nil {
		if why := k.cfg.Hold(); why != "" {
			return fmt.Errorf("no container of a new pod starts now: %s", why)
		}
	}
	return current(p, inv)
}

// current makes the checks that only a pod meets of which nothing has started: who
// has begun holds everything it was given, in that mode and in those places. All
// of the placement is looked at, so that a pod is not refused half way.
func current(p *sharing.Placement, inv *sharing.Inventory) error {
	for i := range p.Containers {
		for _, s := range p.Containers[i].Shares {
			d, ok := inv.Device(s.Device)
			switch {
			case !ok:
				return fmt.Errorf("device %s is not on this node, or is hidden by its configuration", s.Device)
			case s.Mode != d.Mode:
				return &nodeapi.Misplaced{Why: fmt.Sprintf("device %s is in mode %s now; the pod was placed in %s", d.ID, d.Mode, s.Mode)}
			case s.Mode == sharing.MIG && p.GeometryHash != inv.GeometryHash:
				return &nodeapi.Misplaced{Why: fmt.Sprintf("its partitions were chosen under geometries %q, the node applies %q now", p.GeometryHash, inv.GeometryHash)}
			case !d.Healthy:
				return fmt.Errorf("device %s (index %d) takes no pods now: %s; the container starts when it does", d.ID, d.Index, d.Reason)
			}
		}
	}
	return nil
}

func (k *Keeper) preparerOf(c *nodeapi.Claim) (nodeapi.Preparer, error) {
	mode := c.Devices[0].Share.Mode
	for _, p := range k.cfg.Preparers {
		if p.Mode() == mode {
			return p, nil
		}
	}
	return nil, fmt.Errorf("container %s: this node cannot serve mode %q", c.Container, mode)
}
