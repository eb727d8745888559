// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
)

// Occupant is a pod that has shares of devices which are to be drained, or may have.
type Occupant struct {
	Pod string `json:"pod"`
	// Controller is what would make it again, "" if nothing would.
	Controller string `json:"controller,omitempty"`
	// Stays is why the scheduler does not evict it, "" if it does.
	Stays string `json:"stays,omitempty"`
	// Note is what else there is to say.
	Note string `json:"note,omitempty"`
	// Ending says that it has been told to end.
	Ending bool `json:"ending,omitempty"`

	object *corev1.Pod
}

// Object is the pod as it was read.
func (o *Occupant) Object() *corev1.Pod { return o.object }

// Occupants returns who has shares of devices of a node: who is ending, who has to leave, and who
// stays, each in the order of their names.
func (c *Cluster) Occupants(node string, devices []sharing.DeviceID) []Occupant {
	out := []Occupant{}
	at := slices.IndexFunc(c.nodes, func(n *nodes.Node) bool { return n.Name == node && n.Ledger != nil })
	if at < 0 {
		return out
	}
	found := c.nodes[at].OccupantsOf(devices...)
	for _, p := range found.Holders {
		if p.DeletionTimestamp != nil {
			out = append(out, occupantOf(p, ""))
		}
	}
	decided := nodes.DecideLeaving(found.Holders, "")
	for _, p := range decided.Leave {
		out = append(out, occupantOf(p, ""))
	}
	for _, s := range decided.Stay {
		out = append(out, occupantOf(s.Pod, s.Why))
	}
	for _, p := range found.Unknown {
		out = append(out, occupantOf(p, nodes.UnknownHolder))
	}
	return out
}

func occupantOf(p *corev1.Pod, stays string) Occupant {
	o := Occupant{Pod: p.Namespace + "/" + p.Name, Stays: stays, Ending: p.DeletionTimestamp != nil, object: p}
	if c := metav1.GetControllerOf(p); c != nil {
		o.Controller = c.Kind + "/" + c.Name
	}
	return o
}

// OccupantsText is a table of who would leave and who would stay.
func OccupantsText(list []Occupant, p Paint) string {
	var b strings.Builder
	t := &table{}
	t.addRow("POD", "CONTROLLER", "LEAVES", "NOTE")
	for _, o := range list {
		leaves, note := "yes", o.Note
		if o.Stays != "" {
			leaves, note = "no", o.Stays
		}
		if o.Controller == "" {
			o.Controller = "-"
		}
		t.addRow(o.Pod, o.Controller, leaves, note)
	}
	t.writeRows(&b, p)
	return b.String()
}

// mostOccupants is how many pods a line names.
const mostOccupants = 8

// OccupantsLine is one line about who is left.
func OccupantsLine(list []Occupant) string {
	var names []string
	for _, o := range list[:min(len(list), mostOccupants)] {
		if o.Ending {
			o.Pod += " (ending)"
		}
		names = append(names, o.Pod)
	}
	text := fmt.Sprintf("%d pods are left: %s", len(list), strings.Join(names, ", "))
	if len(list) == 1 {
		text = "1 pod is left: " + names[0]
	}
	if more := len(list) - mostOccupants; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return plainText(text)
}
