// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// version is that of the texts in the ConfigMap of node types.
const version = 1

// NodeType is what nodes of a type are like when they are new.
type NodeType struct {
	Name string
	// LearnedFrom is the node that the type was read from, "" if people wrote it.
	LearnedFrom string
	// Node has the labels, annotations, taints and amounts of such a node.
	Node *corev1.Node
	// Inventory is what its annotations say.
	Inventory *sharing.Inventory
}

// typeText is the form of a type in the ConfigMap, as YAML.
type typeText struct {
	Version     int         `json:"version"`
	LearnedFrom string      `json:"learnedFrom,omitempty"`
	Node        corev1.Node `json:"node"`
}

// ParseType reads a type. The error has all mistakes with their paths.
func ParseType(name, text string, s *nodes.Settings) (NodeType, error) {
	in, err := readStrictly(text)
	if err != nil {
		return NodeType{}, fmt.Errorf("node type %s: %w", name, err)
	}
	var wrong []error
	reject := func(path, format string, about ...any) {
		wrong = append(wrong, fmt.Errorf("node type %s: %s: %s", name, path, fmt.Sprintf(format, about...)))
	}
	if in.Version != version {
		reject("version", "is %d, want %d", in.Version, version)
	}
	if bad := validation.IsValidLabelValue(name); len(bad) > 0 {
		reject("the key", "is no value of a label: %s", bad[0])
	}
	if slots := in.Node.Status.Allocatable[corev1.ResourceName(s.Names.Number)]; slots.Sign() <= 0 {
		reject("node.status.allocatable["+s.Names.Number+"]", "is missing: nodes of this type would offer no devices")
	}
	t := NodeType{Name: name, LearnedFrom: in.LearnedFrom, Node: &in.Node}
	inv, found, err := wire.ReadNode(in.Node.Annotations, in.Node.Name, s.Factor)
	switch {
	case err != nil:
		reject("node.metadata.annotations", "%v", err)
	case !found:
		reject("node.metadata.annotations["+wire.NodeInventory+"]", "is missing: copy it from a node of another cluster")
	default:
		t.Inventory = &inv
	}
	return t, errors.Join(wrong...)
}

// readStrictly reads YAML. Fields that there are not are mistakes, all of them with their paths.
func readStrictly(text string) (typeText, error) {
	var in typeText
	var fields map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &fields); err != nil {
		return in, err
	}
	if err := yaml.Unmarshal([]byte(text), &in); err != nil { // the next reader names no path of a wrong value
		return in, err
	}
	return in, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(fields, &in, true)
}

// Text writes a type as ParseType reads it.
func (t *NodeType) Text() (string, error) {
	text, err := yaml.Marshal(typeText{Version: version, LearnedFrom: t.LearnedFrom, Node: *t.Node})
	if err != nil {
		return "", fmt.Errorf("write node type %s: %w", t.Name, err)
	}
	return string(text), nil
}

// TypeOf reads the type of a node that is complete: all devices work, and none is cordoned. What
// tells it from others of its type is left out.
func TypeOf(name string, n *corev1.Node, inv *sharing.Inventory) (NodeType, error) {
	alike := withoutIdentity(inv)
	text, err := wire.EncodeInventory(alike)
	if err != nil {
		return NodeType{}, fmt.Errorf("describe the devices of node %s as those of type %s: %w", n.Name, name, err)
	}
	like := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: alike.Node, Labels: maps.Clone(n.Labels), Annotations: map[string]string{wire.NodeInventory: text}},
		Status:     corev1.NodeStatus{Allocatable: n.Status.Allocatable.DeepCopy()},
	}
	delete(like.Labels, corev1.LabelHostname)
	for _, taint := range n.Spec.Taints {
		if !isTransient(&taint) {
			taint.TimeAdded = nil
			like.Spec.Taints = append(like.Spec.Taints, taint)
		}
	}
	return NodeType{Name: name, LearnedFrom: n.Name, Node: like, Inventory: &alike}, nil
}

// isTransient reports whether a taint says in which state a node is, and not of which kind.
func isTransient(t *corev1.Taint) bool {
	passing := []string{
		corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable, corev1.TaintNodeMemoryPressure,
		corev1.TaintNodeDiskPressure, corev1.TaintNodeNetworkUnavailable, corev1.TaintNodePIDPressure, corev1.TaintNodeOutOfService,
		"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.sh/disrupted",
	}
	return slices.Contains(passing, t.Key)
}

// newNode is the name of a node that is not there.
const newNode = "new"

// withoutIdentity returns the devices of a node as another node of its type would have them.
func withoutIdentity(inv *sharing.Inventory) sharing.Inventory {
	alike := sharing.Inventory{Node: newNode, GeometryHash: inv.GeometryHash, Devices: slices.Clone(inv.Devices)}
	names := map[sharing.DeviceID]sharing.DeviceID{}
	for i := range alike.Devices {
		names[alike.Devices[i].ID] = sharing.DeviceID(fmt.Sprintf("GPU-new-%d", alike.Devices[i].Index))
	}
	for i := range alike.Devices {
		d := &alike.Devices[i]
		d.ID, d.PCI, d.Links, d.Licence = names[d.ID], "", slices.Clone(d.Links), sharing.LicenceUnknown
		for k := range d.Links {
			if name, known := names[d.Links[k].Peer]; known {
				d.Links[k].Peer = name
			}
		}
	}
	return alike
}

// isComplete reports whether all devices of a node work and take pods.
func isComplete(inv *sharing.Inventory) bool {
	return len(inv.Devices) > 0 && !slices.ContainsFunc(inv.Devices, func(d sharing.Device) bool { return !d.IsInService() })
}

// offerText is what pods would have of such devices, without what tells nodes from each other: it
// is equal for inventories that offer the same.
func offerText(inv *sharing.Inventory) string {
	text, err := wire.EncodeInventory(withoutIdentity(inv))
	if err != nil {
		return err.Error()
	}
	return text
}
