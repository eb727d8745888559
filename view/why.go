// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/view/capture"
)

// Why says why a pod waits, or where it is. The reason is the scheduler's own sentence: a view
// decides about no pod.
type Why struct {
	Pod string `json:"pod"`
	// Answer is the first thing to read: one sentence, with that of the scheduler if there is one.
	Answer string `json:"answer"`
	// Scheduler is what the scheduler last said of the pod, "" if nothing.
	Scheduler string `json:"scheduler,omitempty"`
	// Notes are what the scheduler cannot say: that it does not run, or leaves the pod alone.
	Notes []string `json:"notes,omitempty"`
	// Plan is the command that says who could move for the pod, "" if it does not wait for room.
	Plan string `json:"plan,omitempty"`
}

// Why answers for one pod; false if there is no such pod among those that ask for devices.
func (c *Cluster) Why(namespace, name string) (Why, bool) {
	p, ok := c.findPod(namespace, name)
	if !ok {
		return Why{}, false
	}
	return c.explainPod(p), true
}

func (c *Cluster) explainPod(p *corev1.Pod) Why {
	w := Why{Pod: p.Namespace + "/" + p.Name, Scheduler: schedulerSentence(p)}
	switch {
	case hasEnded(p):
		w.Answer = fmt.Sprintf("%s has ended (%s) and holds no devices.", w.Pod, p.Status.Phase)
	case p.Spec.NodeName != "":
		w.Answer = c.describePlace(p, w.Pod)
	case p.DeletionTimestamp != nil:
		w.Answer = w.Pod + " is being deleted and is not scheduled any more."
	case !c.asksForDevices(p):
		w.Answer = fmt.Sprintf("%s asks for no shared devices: no container names %s.", w.Pod, c.settings.Names.Number)
	case len(p.Spec.SchedulingGates) > 0:
		gate, remover := corepod.Gate(p)
		w.Answer = fmt.Sprintf("%s waits because of its scheduling gate %q: %s.", w.Pod, gate, remover)
	case w.Scheduler != "":
		w.Notes = c.notesOn(p)
		w.Answer = fmt.Sprintf("%s waits, the scheduler says: %s", w.Pod, w.Scheduler)
		if _, mistakes := c.settings.ReadRequest(p); len(w.Notes)+len(mistakes)+len(p.Spec.ResourceClaims) == 0 {
			w.Plan = fmt.Sprintf("kubectl deviceshare plan %s -n %s", p.Name, p.Namespace)
		}
	default:
		notes := c.notesOn(p)
		if len(notes) == 0 {
			notes = []string{"it does so within seconds, if it runs: see kubectl deviceshare doctor"}
		}
		w.Answer = fmt.Sprintf("%s waits, and the scheduler has not said why: %s.", w.Pod, strings.Join(notes, "; "))
	}
	return w
}

// schedulerSentence is the message of the pod's condition, "" if no scheduler has written one. The
// API server writes one for pods with scheduling gates, which stays when they are removed.
func schedulerSentence(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason != corev1.PodReasonSchedulingGated {
			return c.Message
		}
	}
	return ""
}

// notesOn are what the scheduler cannot say of a pod that waits.
func (c *Cluster) notesOn(p *corev1.Pod) []string {
	var notes []string
	if c.state.Hashed {
		notes = append(notes, "a capture with hashed names has no sentences of the scheduler; kubectl deviceshare simulate finds them again")
	}
	if note, found := c.noteOnScheduler(p.Spec.SchedulerName); found {
		notes = append(notes, note)
	}
	if group, named := GroupOf(p); named && c.groups[group] == nil && !slices.Contains(c.state.Forbidden, "list podgroups.scheduling.volcano.sh") {
		notes = append(notes, fmt.Sprintf("its group %s does not exist: Volcano looks at the pod when it does", group))
	}
	return notes
}

// noteOnScheduler says what keeps the scheduler that a pod names from placing it; false if nothing
// is known to.
func (c *Cluster) noteOnScheduler(name string) (note string, found bool) {
	var named []capture.Program
	if c.state.Installation != nil {
		named = slices.DeleteFunc(slices.Clone(c.state.Installation.Programs), func(s capture.Program) bool { return !slices.Contains(s.Schedulers, name) })
	}
	switch {
	case len(named) > 0 && !slices.ContainsFunc(named, func(s capture.Program) bool { return s.Ready }):
		return fmt.Sprintf("no scheduler named %s is ready: see kubectl deviceshare doctor", name), true
	case len(named) > 0:
		return "", false
	case name == corev1.DefaultSchedulerName:
		return fmt.Sprintf("its schedulerName is %s, which gives out no shared devices", name), true
	case c.state.Installation != nil && name != "":
		return fmt.Sprintf("its schedulerName is %s, and no pod of such a scheduler was found", name), true
	}
	return "", false
}

func (c *Cluster) describePlace(p *corev1.Pod, name string) string {
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
			return fmt.Sprintf("%s does not wait: it is on node %s with %s%s.", name, n.Name, sharesText(n, &held), startText(p))
		}
	}
	return fmt.Sprintf("%s is on node %s and holds no devices there%s.", name, p.Spec.NodeName, startText(p))
}

// startText says that a container of a pod that has a node does not run yet, "" if all do.
func startText(p *corev1.Pod) string {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if w := list[i].State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" {
				return fmt.Sprintf("; its container %s has not started (%s), which kubectl describe pod -n %s %s explains", list[i].Name, w.Reason, p.Namespace, p.Name)
			}
		}
	}
	return ""
}

// sharesText is "10GiB of device 0" and so on.
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

func countText(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
