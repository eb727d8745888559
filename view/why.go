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
	// Help is what a person can do about the reason, "" if the reason says it.
	Help string `json:"help,omitempty"`
	// Devices say for each card why it does not take the container alone.
	Devices []DeviceVerdict `json:"devices,omitempty"`
}

// DeviceVerdict is why one card does not take a container.
type DeviceVerdict struct {
	Index int    `json:"index"`
	Mode  string `json:"mode"`
	// Reason is the code of the reason; Text and Help say for people what it means and what they
	// can do about it.
	Reason string `json:"reason"`
	Text   string `json:"text"`
	Help   string `json:"help"`
}

// mostVerdicts bounds the nodes that are listed one by one.
const mostVerdicts = 50

// Why answers for one pod; false if there is no such pod among those that ask for devices.
func (c *Cluster) Why(namespace, name string) (Why, bool) {
	p, ok := c.findPod(namespace, name)
	if !ok {
		return Why{}, false
	}
	return c.explainPod(p), true
}

func (c *Cluster) explainPod(p *corev1.Pod) Why {
	w := Why{Pod: p.Namespace + "/" + p.Name, Scheduler: lastSaid(p)}
	if answer, settled := c.explainWithoutNodes(p, w.Pod); settled {
		w.Answer = answer
		return w
	}
	ask, mistakes := c.settings.ReadRequest(p)
	if len(mistakes) > 0 {
		texts := make([]string, 0, len(mistakes))
		for _, m := range mistakes {
			texts = append(texts, m.String())
		}
		w.Answer = fmt.Sprintf("%s waits because its device request cannot be read: %s.", w.Pod, strings.Join(texts, "; "))
		return w
	}
	c.addVerdicts(&w, p, &ask)
	c.writeAnswer(&w, p, &ask)
	return w
}

// explainWithoutNodes answers for pods that no node has to be asked about.
func (c *Cluster) explainWithoutNodes(p *corev1.Pod, name string) (string, bool) {
	switch {
	case hasEnded(p):
		return fmt.Sprintf("%s has ended (%s) and holds no devices.", name, p.Status.Phase), true
	case p.Spec.NodeName != "":
		return c.placedWhere(p, name), true
	case p.DeletionTimestamp != nil:
		return name + " is being deleted and is not scheduled any more.", true
	case !c.asksForDevices(p):
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

// addVerdicts asks every node with devices.
func (c *Cluster) addVerdicts(w *Why, p *corev1.Pod, ask *sharing.PodRequest) {
	for _, n := range c.nodes {
		if n.Inventory == nil && n.SetAside == nil {
			continue
		}
		w.Nodes = append(w.Nodes, c.judgeNode(n, p, ask))
	}
}

// judgeNode asks one node in the scheduler's order: may the pod be there, can it serve at all, do
// the devices fit.
func (c *Cluster) judgeNode(n *nodes.Node, p *corev1.Pod, ask *sharing.PodRequest) Verdict {
	v := Verdict{Node: n.Name}
	if closed := nodes.KeptOff(p, n.Object); closed != "" {
		v.Reason, v.Help = closed, "uncordon the node, tolerate its taint, or correct the pod's selector"
		return v
	}
	if n.Unusable != nil {
		v.Reason = n.Unusable.Error()
		return v
	}
	_, refused := place.Place(n.Ledger.Views(), ask, c.backends, policyOf(ask))
	if v.Fits = !refused.Refused(); v.Fits {
		return v
	}
	v.Reason, v.Help = refused.String(), refused.Main().Advice()
	if n.Empty.Refuses(ask) {
		v.Reason += " (it would not fit the empty node either)"
		if refused.Main().Curable() {
			v.Help = "ask for less: no pod that ends makes room for it here"
		}
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
		reason, d := sharing.Fits, views[i].Device
		if _, refused := place.Place(views[i:i+1], &one, c.backends, policyOf(ask)); refused.Refused() {
			reason = refused.Main()
		}
		v := DeviceVerdict{Index: d.Index, Mode: string(d.Mode), Reason: reason.String(), Text: reason.Text(), Help: reason.Advice()}
		if d.MIG != nil && reason == sharing.NoPartitionFits {
			v.Text += "; partitions have " + partitionSizes(d.MIG)
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

// writeAnswer writes the answer from the verdicts and what the pod's group and queue say.
func (c *Cluster) writeAnswer(w *Why, p *corev1.Pod, ask *sharing.PodRequest) {
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
	switch held, isHeld := c.heldBack(p, ask); {
	case fits != "" && isHeld:
		w.Answer = fmt.Sprintf("%s waits because %s; its devices would fit node %s.", w.Pod, held, fits)
	case fits != "":
		w.Answer = fmt.Sprintf("%s is about to be placed: its devices fit node %s.", w.Pod, fits)
		if w.Scheduler != "" {
			w.Answer = fmt.Sprintf("%s waits for another reason than devices, which fit node %s: the scheduler says what, below.", w.Pod, fits)
		}
	case usable == 0:
		w.Answer = fmt.Sprintf("%s waits because no node takes it: %s.", w.Pod, closestRefusal(w).reasonText())
	default:
		w.Answer = fmt.Sprintf("%s waits because its devices fit on none of %s: %s.", w.Pod, countText(len(w.Nodes), "node"), closestRefusal(w).reasonText())
		w.Helps = c.findRemedies(ask)
		if isHeld {
			w.Helps = append(w.Helps, "besides, "+held)
		}
	}
}

// closestRefusal is the refusal of the first node whose devices were asked, else of the first node.
func closestRefusal(w *Why) *Verdict {
	for i := range w.Nodes {
		if len(w.Nodes[i].Devices) > 0 {
			return &w.Nodes[i]
		}
	}
	return &w.Nodes[0]
}

// reasonText is the reason of a node with what helps, in one sentence or two.
func (v *Verdict) reasonText() string {
	if v.Help == "" {
		return v.Node + ": " + v.Reason
	}
	return v.Node + ": " + v.Reason + ". What helps: " + v.Help
}

// heldBack says why Volcano does not schedule the pod yet, whatever the devices say.
func (c *Cluster) heldBack(p *corev1.Pod, ask *sharing.PodRequest) (string, bool) {
	name, named := groupOf(p)
	g := c.groups[name]
	switch {
	case !named, g == nil && slices.Contains(c.state.Forbidden, "list podgroups.scheduling.volcano.sh"):
		return "", false
	case g == nil:
		return fmt.Sprintf("its group %s does not exist", name), true
	}
	if have := c.countMembers(p); have < int(g.Spec.MinMember) {
		return fmt.Sprintf("its group %s is not complete: it has %d of the %d pods it needs to start", name, have, g.Spec.MinMember), true
	}
	if full, ok := c.fullQueue(p, ask); ok {
		return full, true
	}
	if g.Status.Phase == schedulingv1beta1.PodGroupPending {
		return fmt.Sprintf("Volcano holds its group %s back before scheduling (queue %s)", name, g.Spec.Queue), true
	}
	return "", false
}

// countMembers counts the pods of the pod's group that count for its minimum, with devices or
// without.
func (c *Cluster) countMembers(p *corev1.Pod) int {
	name, _ := groupOf(p)
	n := 0
	for _, q := range c.state.Pods {
		if of, ok := groupOf(q); ok && of == name && countsAsMember(q) {
			n++
		}
	}
	return n
}

// countsAsMember reports whether Volcano counts a pod for the minimum of its group: one that has
// succeeded counts, one that has failed or is being deleted does not.
func countsAsMember(p *corev1.Pod) bool {
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		return true
	case corev1.PodPending, corev1.PodRunning:
		return p.DeletionTimestamp == nil
	}
	return false
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

func countText(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
