// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/wire"
)

// admitContainer decides whether a container may start with its shares, and records that it
// does. The devices of the pod are locked meanwhile: a change of mode that comes
// before is seen here, and one that comes after sees the record.
func (m *Manager) admitContainer(ctx context.Context, pod *corev1.Pod, c kubelet.Container, slots []string) (modes.Claim, error) {
	terms := m.cfg.Terms.Terms()
	records := m.cfg.Store.Of(sharing.Owner(pod.UID))
	state, err := m.scannedState()
	if err != nil {
		return modes.Claim{}, m.waits.refuseUntilLimit(sharing.Owner(pod.UID), err.Error(), "")
	}
	placement, edited, err := heldPlacement(pod, state.Inventory(), records, terms)
	if recordOf(records, c.Name) == nil {
		if err == nil {
			err = m.requireSigned(pod, placement.Node)
		}
		if err != nil {
			return modes.Claim{}, err
		}
	}
	unlock, err := m.cfg.Devices.LockWithPatience(ctx, deviceWait, devicesOf(&placement)...)
	if err != nil {
		return modes.Claim{}, fmt.Errorf("container %s: %w", c.Name, err)
	}
	defer unlock()
	if state, err = m.scannedState(); err != nil {
		return modes.Claim{}, err
	}
	if edited != "" {
		m.cfg.Observer.Edited(pod, edited)
	}
	ask, begun := node.Ask{Owner: sharing.Owner(pod.UID), Container: c.Name, Slots: len(slots), Placement: placement}, len(records) > 0
	if !begun {
		ask.Requests, ask.Isolation = readRequests(pod, terms), corepod.Isolation(pod)
	}
	admitted, err := m.decideAdmission(ctx, state, ask, begun)
	if err != nil {
		return modes.Claim{}, fmt.Errorf("container %s: %w", c.Name, err)
	}
	cl := newClaim(pod, c, &admitted, terms)
	if _, err := m.preparerOf(&cl); err != nil {
		return modes.Claim{}, err
	}
	return cl, m.cfg.Store.Put(m.recordWithPartitions(&cl, slots))
}

// requireSigned returns an error if no scheduler vouches for the pod's placement, where that is
// checked. A container that was prepared before needs none: it is given what it got then.
func (m *Manager) requireSigned(pod *corev1.Pod, node string) error {
	if m.cfg.Signatures == nil {
		return nil
	}
	return m.cfg.Signatures.Require(pod.Annotations[wire.PodSignature],
		wire.Signed{Owner: sharing.Owner(pod.UID), Node: node, Placement: pod.Annotations[wire.PodPlacement]})
}

// decideAdmission admits a container or says why not. Pods that another one would take the devices
// from are asked for past the watch before: the scheduler may have seen their end earlier.
func (m *Manager) decideAdmission(ctx context.Context, state node.State, a node.Ask, begun bool) (node.Claim, error) {
	var running []node.Running // a pod that has begun keeps what it holds, beside whomever
	if !begun {
		running = m.runningPods()
	}
	admitted, refusal := node.Admit(state, a, begun, running)
	if refusal != nil && refusal.Reason == node.DeviceTaken {
		left, err := m.stillThere(ctx, running, &a)
		if err != nil {
			return node.Claim{}, fmt.Errorf("%s; it is not known whether that has ended: %w", refusal.Detail, err)
		}
		admitted, refusal = node.Admit(state, a, begun, left)
	}
	if refusal != nil {
		return node.Claim{}, m.refusalError(a.Owner, refusal)
	}
	m.waits.endWait(a.Owner)
	return admitted, nil
}

// askWait is how long the API server may take to say which pods are there.
const askWait = 5 * time.Second

// stillThere are the pods of which the API server says that they are there. Only those are asked
// for that have a share of the same devices.
func (m *Manager) stillThere(ctx context.Context, running []node.Running, a *node.Ask) (left []node.Running, err error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	for _, r := range running {
		if r.Owner == a.Owner || !a.Placement.Meets(&r.Placement) {
			continue
		}
		namespace, name, _ := strings.Cut(r.Pod, "/")
		over, err := m.hasPodEnded(ctx, r.Owner, types.NamespacedName{Namespace: namespace, Name: name})
		if err != nil {
			return nil, err
		}
		if !over {
			left = append(left, r)
		}
	}
	return left, nil
}

// refusalError is a refusal as an error. A final one is *modes.Misplaced, as preparers say it,
// and so is one that the pod has met for too long.
func (m *Manager) refusalError(o sharing.Owner, r *node.Refusal) error {
	switch {
	case r.IsFinal():
		return &modes.Misplaced{Why: r.Detail}
	case r.IsLimited():
		return m.waits.refuseUntilLimit(o, r.Detail, r.Hope)
	}
	return errors.New(r.String())
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

// scannedState is the state of the node, once its devices are known.
func (m *Manager) scannedState() (node.State, error) {
	state := m.cfg.Node.State()
	if why, is := state.IsUnread(); is {
		return state, fmt.Errorf("the devices of this node are not known: %s", why)
	}
	return state, nil
}

func nodeRecords(records []checkpoint.Record) []node.Record {
	out := make([]node.Record, 0, len(records))
	for i := range records {
		r := &records[i]
		n := node.Record{Owner: r.Owner, Pod: r.Namespace + "/" + r.Pod, Mode: r.Mode}
		for _, d := range r.Devices {
			n.Devices = append(n.Devices, d.Device)
		}
		out = append(out, n)
	}
	return out
}

func (m *Manager) preparerOf(c *modes.Claim) (modes.Preparer, error) {
	mode := c.Devices[0].Share.Mode
	for _, p := range m.cfg.Preparers {
		if p.Mode() == mode {
			return p, nil
		}
	}
	return nil, fmt.Errorf("container %s: this node cannot serve mode %q", c.Container, mode)
}
