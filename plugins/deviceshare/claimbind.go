// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/claims"
	"deviceshare/plugins/deviceshare/claimstate"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// claimNode returns the node where a pod's claim has its devices, or was given some in this
// session; "" if it has none, or the pod asks by resources.
func (j *judge) claimNode(a *ask) string {
	if a.claim == nil {
		return ""
	}
	if r, placed := j.overlay.placed[a.claim.owner]; placed {
		return r.node
	}
	return a.claim.claim.Node
}

// claimAnswer returns what a node says to a pod whose claim has devices, "" if they are there. It
// is false if the devices of the node have to be asked.
func (j *judge) claimAnswer(a *ask, node string) (text string, isSettled bool) {
	switch at := j.claimNode(a); at {
	case "":
		return "", false
	case node:
		return "", true
	default:
		return fmt.Sprintf("node(s) where its claim %s has no devices: they are on node %s", a.claim.name.Name, at), true
	}
}

// requestOn returns what a pod asks of a node: without the devices that the selectors of its claim
// do not accept.
func (j *judge) requestOn(a *ask, n *nodes.Node) *sharing.PodRequest {
	if a.claim == nil || n.Inventory == nil {
		return &a.request
	}
	refused := j.claims.selectors.Refused(a.claim.selectors, n.Inventory)
	if len(refused) == 0 {
		return &a.request
	}
	request := a.request
	request.Selector.NotIDs = refused
	return &request
}

// joinsClaim reports whether a task that Volcano puts on a node has a claim that has its devices,
// and notes that the task uses it. An error says that the devices are on another node.
func (p *Plugin) joinsClaim(t *api.TaskInfo, a *ask, n *nodes.Node) (joins bool, err error) {
	node := p.claimNode(a)
	switch {
	case node == "":
		return false, nil
	case node != n.Name && changeOnAllocate(t) == reserved:
		return true, errNotPlaced(n.Name)
	}
	p.overlay.joined[sharing.Owner(t.Pod.UID)] = a.claim.owner
	return true, nil
}

// deallocateClaim follows Volcano when it takes a task with a claim off a node. An evicted one goes
// on using its claim until it has ended.
func (p *Plugin) deallocateClaim(e *framework.Event) {
	if changeOnDeallocate(e.Task) == moved {
		return
	}
	p.store.claims.Withdraw(e.Task.Pod.UID)
	if claim := p.overlay.leaveClaim(sharing.Owner(e.Task.Pod.UID)); claim != "" {
		p.limits.UnchargeOwner(claim)
	}
}

// leaveClaim notes that the session took a pod off its node. If it was the last of a claim that the
// session had given devices, they are taken back, and the claim is returned; else "".
func (o *overlay) leaveClaim(pod sharing.Owner) sharing.Owner {
	claim, isJoined := o.joined[pod]
	delete(o.joined, pod)
	if _, placed := o.placed[claim]; !isJoined || !placed {
		return ""
	}
	for _, other := range o.joined {
		if other == claim {
			return ""
		}
	}
	o.releaseDevices(claim)
	return claim
}

// decideClaim notes what the claim of a pod was given, right before the pod is handed over for
// binding.
func (p *Plugin) decideClaim(t *api.TaskInfo, a *ask) {
	if a.claim == nil {
		p.store.claims.Decide(t.Pod, claims.Bind{Node: t.NodeName, Refusal: a.mistakes}, nil)
		return
	}
	b := claims.Bind{Owner: a.claim.owner, Name: a.claim.name, Node: t.NodeName}
	r, placed := p.overlay.placed[a.claim.owner]
	switch {
	case placed && r.node == t.NodeName:
		d := &claimstate.Decision{Node: r.node, Placement: r.placement, Queue: p.queueOf(t)}
		d.Placement.Namespace, d.Placement.Neighbours = t.Pod.Namespace, a.request.Neighbours
		d.Allocation, b.Refusal = p.buildAllocation(a, d)
		p.store.claims.Decide(t.Pod, b, d)
	case a.claim.claim.Node == t.NodeName:
		p.store.claims.Decide(t.Pod, b, nil)
	default:
		b.Refusal = errNoPlacement
		p.store.claims.Decide(t.Pod, b, nil)
	}
}

func (p *Plugin) queueOf(t *api.TaskInfo) string {
	if job, ok := p.jobs[t.Job]; ok {
		return string(job.Queue)
	}
	return ""
}

// buildAllocation returns what is written into the status of a claim. Where placements are signed,
// one that cannot be is an error: the node would not prepare it.
func (p *Plugin) buildAllocation(a *ask, d *claimstate.Decision) (*resourcev1.AllocationResult, error) {
	given := wire.ClaimPlacement{Placement: d.Placement, Queue: d.Queue}
	text, err := given.SignedText()
	if err == nil && p.store.signer != nil {
		given.Signature, err = p.store.signer.Sign(wire.Signed{Owner: a.claim.owner, Node: d.Node, Placement: text})
	}
	if err != nil {
		return nil, fmt.Errorf("write the placement of claim %s: %w", a.claim.name, err)
	}
	parameters, err := wire.EncodeClaimPlacement(given)
	if err != nil {
		return nil, fmt.Errorf("write the placement of claim %s: %w", a.claim.name, err)
	}
	out := &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{d.Node}}},
	}}}}
	for i := range d.Placement.Containers {
		c := &d.Placement.Containers[i]
		for j := range c.Shares {
			out.Devices.Results = append(out.Devices.Results, resourcev1.DeviceRequestAllocationResult{
				Request: c.Container, Driver: wire.ClaimDriver, Pool: d.Node, Device: wire.ClaimDevice(&c.Shares[j]),
			})
		}
	}
	if a.claim.class != nil {
		for _, config := range a.claim.class.Spec.Config {
			if config.Opaque != nil && config.Opaque.Driver == wire.ClaimDriver {
				out.Devices.Config = append(out.Devices.Config, resourcev1.DeviceAllocationConfiguration{
					Source: resourcev1.AllocationConfigSourceClass, DeviceConfiguration: config.DeviceConfiguration})
			}
		}
	}
	out.Devices.Config = append(out.Devices.Config, resourcev1.DeviceAllocationConfiguration{
		Source: resourcev1.AllocationConfigSourceClaim, DeviceConfiguration: resourcev1.DeviceConfiguration{
			Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: wire.ClaimDriver, Parameters: runtime.RawExtension{Raw: parameters}}},
	})
	return out, nil
}
