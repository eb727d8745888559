// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/place"
	"deviceshare/sharing/podspec/corepod"
)

// Why says why a pod waits, or where it is.
type Why struct {
	Pod string `json:"pod"`
	// Answer is the first thing to read: one sentence.
	Answer string `json:"answer"`
	// Scheduler is what the scheduler last said of the pod, "" if nothing.
	Scheduler string `json:"scheduler,omitempty"`
	// Nodes say of each node with devices why it does not take the pod, or that it does.
	Nodes []Verdict `json:"nodes,omitempty"`
	// Helps are what would let the pod in.
	Helps []string `json:"helps,omitempty"`
}

// Verdict is what one node says to a pod.
type Verdict struct {
	Node string `json:"node"`
	Fits bool   `json:"fits"`
	// Reason is why it does not fit, the scheduler's own words; "" if it does.
	Reason string `json:"reason,omitempty"`
	// Devices say for each card why it does not take the container alone.
	Devices []DeviceVerdict `json:"devices,omitempty"`
}

// DeviceVerdict is why one card does not take a container.
type DeviceVerdict struct {
	Index  int    `json:"index"`
	Reason string `json:"reason"`
}

// mostVerdicts bounds the nodes that are listed one by one.
const mostVerdicts = 50

// Why answers for one pod; false if there is no such pod among those that ask for devices.
func (c *Cluster) Why(namespace, name string) (Why, bool) {
	p, ok := c.pod(namespace, name)
	if !ok {
		return Why{}, false
	}
	return c.why(p), true
}

func (c *Cluster) why(p *corev1.Pod) Why {
	w := Why{Pod: p.Namespace + "/" + p.Name, Scheduler: lastSaid(p)}
	if answer, settled := c.settled(p, w.Pod); settled {
		w.Answer = answer
		return w
	}
	ask, mistakes := c.ask(p)
	if len(mistakes) > 0 {
		texts := make([]string, 0, len(mistakes))
		for _, m := range mistakes {
			texts = append(texts, m.String())
		}
		w.Answer = fmt.Sprintf("%s waits because its device request cannot be read: %s.", w.Pod, strings.Join(texts, "; "))
		return w
	}
	c.judge(&w, &ask)
	c.conclude(&w, p, &ask)
	return w
}

// settled answers for pods that no node has to be asked about.
func (c *Cluster) settled(p *corev1.Pod, name string) (string, bool) {
	switch {
	case ended(p):
		return fmt.Sprintf("%s has ended (%s) and holds no devices.", name, p.Status.Phase), true
	case p.Spec.NodeName != "":
		return c.placedWhere(p, name), true
	case p.DeletionTimestamp != nil:
		return name + " is being deleted and is not scheduled any more.", true
	case !corepod.Asks(p, c.settings.Names):
		return fmt.Sprintf("%s asks for no shared devices: no container names %s.", name, c.settings.Names.Number), true
	case len(p.Spec.SchedulingGates) > 0:
		return fmt.Sprintf("%s waits because of its scheduling gate %q: whoever set it has to remove it.", name, p.Spec.SchedulingGates[0].Name), true
	}
	return "", false
}

// placedWhere answers for a pod that has a node.
func (c *Cluster) placedWhere(p *corev1.Pod, name string) string {
	for _, n := range c.nodes {
		if n.Name != p.Spec.NodeName {
			continue
		}
		for problem := range n.Problems() {
			if problem.Object.UID == p.UID {
				return fmt.Sprintf("%s is on node %s, but %s.", name, n.Name, problem.Message)
			}
		}
		if n.Ledger == nil {
			break
		}
		if held, ok := n.Ledger.Placement(sharing.Owner(p.UID)); ok {
			return fmt.Sprintf("%s does not wait: it is on node %s with %s.", name, n.Name, sharesText(n, &held))
		}
	}
	return fmt.Sprintf("%s is on node %s and holds no devices there.", name, p.Spec.NodeName)
}

// sharesText is "device 0 (10GiB)" and so on.
func sharesText(n *nodes.Node, p *sharing.Placement) string {
	var parts []string
	for _, container := range p.Containers {
		for i := range container.Shares {
			s := &container.Shares[i]
			if d, ok := n.Inventory.Device(s.Device); ok {
				parts = append(parts, fmt.Sprintf("%v of device %d", s.Memory, d.Index))
			}
		}
	}
	return strings.Join(parts, ", ")
}

// judge asks every node with devices.
func (c *Cluster) judge(w *Why, ask *sharing.PodRequest) {
	for _, n := range c.nodes {
		if n.Inventory == nil && n.SetAside == nil {
			continue
		}
		w.Nodes = append(w.Nodes, c.verdict(n, ask))
	}
}

// verdict asks one node in the scheduler's order: can it serve at all, then do the devices fit.
func (c *Cluster) verdict(n *nodes.Node, ask *sharing.PodRequest) Verdict {
	v := Verdict{Node: n.Name}
	if n.Unusable != nil {
		v.Reason = n.Unusable.Error()
		return v
	}
	_, refused := place.Place(n.Ledger.Views(), ask, c.backends, policyOf(ask))
	if v.Fits = !refused.Refused(); v.Fits {
		return v
	}
	v.Reason = refused.String()
	if n.Empty.Refuses(ask) {
		v.Reason += " (it would not fit the empty node either)"
	}
	v.Devices = c.deviceVerdicts(n, ask, refused.Container)
	return v
}

// deviceVerdicts asks each card alone for one share of the container that found no room.
func (c *Cluster) deviceVerdicts(n *nodes.Node, ask *sharing.PodRequest, container string) []DeviceVerdict {
	one := *ask
	one.Requests = nil
	for _, r := range ask.Requests {
		if r.Container == container {
			r.Count = 1
			one.Requests = []sharing.Request{r}
		}
	}
	if len(one.Requests) == 0 {
		return nil
	}
	views := n.Ledger.Views()
	out := make([]DeviceVerdict, 0, len(views))
	for i := range views {
		_, refused := place.Place(views[i:i+1], &one, c.backends, policyOf(ask))
		v := DeviceVerdict{Index: views[i].Device.Index, Reason: onlyReason(&refused)}
		if mig := views[i].Device.MIG; mig != nil && v.Reason == sharing.NoPartitionFits.String() {
			v.Reason += " (partitions have " + partitionSizes(mig) + ")"
		}
		out = append(out, v)
	}
	return out
}

// partitionSizes lists how much memory partitions have, which is a little less than
// people call them by.
func partitionSizes(p *sharing.Partitioning) string {
	var sizes []sharing.Bytes
	for i := range p.Profiles {
		sizes = append(sizes, p.Profiles[i].Memory)
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	var text strings.Builder
	for i, size := range sizes {
		switch {
		case i > 0 && i == len(sizes)-1:
			text.WriteString(" or ")
		case i > 0:
			text.WriteString(", ")
		}
		text.WriteString(size.String())
	}
	return text.String()
}

// onlyReason is the reason of a refusal by one device.
func onlyReason(r *sharing.Refusals) string {
	for reason, n := range r.Count {
		if n > 0 && r.Refused() {
			return sharing.Reason(reason).String()
		}
	}
	return sharing.Fits.String()
}

// conclude writes the answer from the verdicts and what the pod's group and queue say.
func (c *Cluster) conclude(w *Why, p *corev1.Pod, ask *sharing.PodRequest) {
	if len(w.Nodes) == 0 {
		w.Answer = w.Pod + " waits because no node publishes devices: is the device plugin installed?"
		return
	}
	fits, usable := "", 0
	for _, v := range w.Nodes {
		if v.Fits && fits == "" {
			fits = v.Node
		}
		if len(v.Devices) > 0 || v.Fits {
			usable++
		}
	}
	switch held, isHeld := c.heldBack(p); {
	case fits != "" && isHeld:
		w.Answer = fmt.Sprintf("%s waits because %s; its devices would fit node %s.", w.Pod, held, fits)
	case fits != "":
		w.Answer = fmt.Sprintf("%s is about to be placed: its devices fit node %s.", w.Pod, fits)
		if w.Scheduler != "" {
			w.Answer = fmt.Sprintf("%s waits for another reason than devices, which fit node %s: the scheduler says what, below.", w.Pod, fits)
		}
	case usable == 0:
		w.Answer = fmt.Sprintf("%s waits because no node takes pods with devices now: %s.", w.Pod, w.Nodes[0].Reason)
	default:
		w.Answer = fmt.Sprintf("%s waits because its devices fit on none of %s: %s.", w.Pod, count(len(w.Nodes), "node"), c.closest(w))
		w.Helps = c.helps(ask)
		if isHeld {
			w.Helps = append(w.Helps, "beside that, "+held)
		}
	}
}

// closest is the refusal of the first node that could be asked.
func (c *Cluster) closest(w *Why) string {
	for _, v := range w.Nodes {
		if len(v.Devices) > 0 {
			return v.Node + ": " + v.Reason
		}
	}
	return w.Nodes[0].Reason
}

// heldBack says why Volcano does not schedule the pod yet, whatever the devices say.
func (c *Cluster) heldBack(p *corev1.Pod) (string, bool) {
	name, named := groupOf(p)
	g := c.groups[name]
	switch {
	case !named, g == nil && slices.Contains(c.state.Forbidden, "list podgroups.scheduling.volcano.sh"):
		return "", false
	case g == nil:
		return fmt.Sprintf("its group %s does not exist", name), true
	}
	if have := c.members(p); have < int(g.Spec.MinMember) {
		return fmt.Sprintf("its group %s is not complete: it has %d of the %d pods it needs to start", name, have, g.Spec.MinMember), true
	}
	if full, ok := c.fullQueue(g.Spec.Queue, p); ok {
		return full, true
	}
	if g.Status.Phase == schedulingv1beta1.PodGroupPending {
		return fmt.Sprintf("Volcano holds its group %s back before scheduling (queue %s)", name, g.Spec.Queue), true
	}
	return "", false
}

// members counts the pods of the pod's group that count for its minimum, with devices or without.
func (c *Cluster) members(p *corev1.Pod) int {
	name, _ := groupOf(p)
	n := 0
	for _, q := range c.state.Pods {
		if of, ok := groupOf(q); ok && of == name && counts(q) {
			n++
		}
	}
	return n
}

// counts reports whether Volcano counts a pod for the minimum of its group: one that has succeeded
// counts, one that has failed or is being deleted does not.
func counts(p *corev1.Pod) bool {
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		return true
	case corev1.PodPending, corev1.PodRunning:
		return p.DeletionTimestamp == nil
	}
	return false
}

// fullQueue says which quota of the queue leaves no room for the pod.
func (c *Cluster) fullQueue(queue string, p *corev1.Pod) (string, bool) {
	for _, q := range c.state.Queues {
		if q.Name != queue {
			continue
		}
		for _, r := range c.quotas(q) {
			asked := askedOf(p, corev1.ResourceName(r.Resource))
			// Of the other resources Volcano counts amounts times numbers: only it adds those up.
			if r.Resource == c.settings.Names.Number && r.Quota != "" && r.used+asked > r.quota && asked > 0 {
				return fmt.Sprintf("queue %s is at %d of %d %s and the pod asks for %d", queue, r.used, r.quota, r.Resource, asked), true
			}
		}
	}
	return "", false
}

// askedOf sums up a resource over the pod's containers.
func askedOf(p *corev1.Pod, name corev1.ResourceName) int64 {
	var sum int64
	for i := range p.Spec.Containers {
		amount := p.Spec.Containers[i].Resources.Limits[name]
		sum += amount.Value()
	}
	return sum
}

// lastSaid is the message of the pod's condition.
func lastSaid(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
