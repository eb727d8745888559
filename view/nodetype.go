// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// NodeType is what nodes like one offer, for autoscalers that have to know before there is any.
type NodeType struct {
	// Instance is the cloud's name of the type, "" if the node does not have it.
	Instance string `json:"instance,omitempty"`
	// Offers are the amounts that pods ask for, in the order of number, memory and cores.
	Offers []Offer `json:"offers"`
}

// Offer is an amount of a resource.
type Offer struct {
	Resource string `json:"resource"`
	Amount   string `json:"amount"`
}

// NodeTypeOf returns the type of a node; false if it offers no devices now.
func (c *Cluster) NodeTypeOf(n *corev1.Node) (NodeType, bool) {
	t := NodeType{Instance: n.Labels[corev1.LabelInstanceTypeStable]}
	for _, name := range []string{c.settings.Names.Number, c.settings.Names.Memory, c.settings.Names.Cores} {
		if amount, has := n.Status.Allocatable[corev1.ResourceName(name)]; has && amount.Sign() > 0 {
			t.Offers = append(t.Offers, Offer{name, strconv.FormatInt(amount.Value(), 10)})
		}
	}
	return t, len(t.Offers) > 0 && t.Offers[0].Resource == c.settings.Names.Number
}

// Autoscalers returns the names of those that NodeType.Text writes for.
func Autoscalers() []string { return []string{"aws", "azure", "cluster-api", "karpenter", "tencent"} }

// Text returns the type as an autoscaler reads it: tags of a group of machines, annotations of a
// MachineDeployment, or a NodeOverlay.
func (t NodeType) Text(autoscaler string) (string, error) {
	switch autoscaler {
	case "aws", "tencent": // the cluster autoscaler's own form
		return t.writeTags("k8s.io/cluster-autoscaler/node-template/resources/", func(name string) string { return name }), nil
	case "azure": // whose tags have no slashes
		return t.writeTags("k8s.io_cluster-autoscaler_node-template_resources_", func(name string) string { return strings.ReplaceAll(name, "/", "_") }), nil
	case "cluster-api": // which knows one resource beside CPU and memory
		return fmt.Sprintf("capacity.cluster-autoscaler.kubernetes.io/gpu-type=%s\ncapacity.cluster-autoscaler.kubernetes.io/gpu-count=%s\n", t.Offers[0].Resource, t.Offers[0].Amount), nil
	case "karpenter":
		return t.writeOverlay()
	}
	return "", fmt.Errorf("unknown autoscaler %q: want one of %s", autoscaler, strings.Join(Autoscalers(), ", "))
}

func (t NodeType) writeTags(prefix string, rename func(string) string) string {
	var b strings.Builder
	for _, o := range t.Offers {
		fmt.Fprintf(&b, "%s%s=%s\n", prefix, rename(o.Resource), o.Amount)
	}
	return b.String()
}

// writeOverlay writes Karpenter's NodeOverlay, which is for types of instances.
func (t NodeType) writeOverlay() (string, error) {
	if t.Instance == "" {
		return "", fmt.Errorf("the node has no label %s, by which Karpenter knows its type", corev1.LabelInstanceTypeStable)
	}
	name := "deviceshare-" + strings.ToLower(strings.ReplaceAll(t.Instance, "_", "-"))
	if wrong := slices.Concat(validation.IsDNS1123Subdomain(name), validation.IsValidLabelValue(t.Instance)); len(wrong) > 0 {
		return "", fmt.Errorf("the type %q of the node: %s", t.Instance, strings.Join(wrong, "; "))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata:\n  name: %s\nspec:\n  requirements:\n", name)
	fmt.Fprintf(&b, "  - {key: %s, operator: In, values: [%q]}\n  capacity:\n", corev1.LabelInstanceTypeStable, t.Instance)
	for _, o := range t.Offers {
		fmt.Fprintf(&b, "    %s: %q\n", o.Resource, o.Amount)
	}
	return b.String(), nil
}
