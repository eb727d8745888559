// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing/rivals"
)

// Installation is what a cluster has of the product and of programs that do the same. Only the
// doctor needs it.
type Installation struct {
	// Namespace is where the product is looked for.
	Namespace string    `json:"namespace"`
	Programs  []Program `json:"programs,omitempty"`
	Hooks     []Hook    `json:"hooks,omitempty"`
	// Rights are what the user's commands need, with what the API server says of it.
	Rights []Right `json:"rights,omitempty"`
	// Probe is what became of a pod that was created for a trial only, nil if none was.
	Probe *Probe `json:"probe,omitempty"`
}

// Program is a pod of the product, of a scheduler of Volcano, or of a legacy device plugin.
type Program struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Node      string `json:"node,omitempty"`
	// Owner is the kind and name of what makes the pod, "deployment x" or "daemonset x"; "" if it
	// has none.
	Owner string `json:"owner,omitempty"`
	// Part is the name of the product's program, "" of others.
	Part string `json:"part,omitempty"`
	// Image is without its registry and folder.
	Image string `json:"image"`
	// Schedulers are the names under which it schedules.
	Schedulers []string `json:"schedulers,omitempty"`
	// Legacy says that it is Volcano's own device plugin.
	Legacy bool `json:"legacy,omitempty"`
	Ready  bool `json:"ready"`
}

// Hook is one webhook that the API server calls for the product.
type Hook struct {
	Name string `json:"name"`
	// Namespace and Service are whom it calls, "" if it is a URL.
	Namespace string `json:"namespace,omitempty"`
	Service   string `json:"service,omitempty"`
	// HasCA says that the API server has certificates by which it knows the webhook.
	HasCA bool `json:"hasCA"`
}

// Right is a question whether the user may do something.
type Right struct {
	// For is the command that needs it.
	For       string `json:"for"`
	Verb      string `json:"verb"`
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Allowed   bool   `json:"allowed"`
}

// Probe is a pod with devices that the API server was asked to admit, without making it.
type Probe struct {
	// Completed says that the webhook has given it a scheduler.
	Completed bool `json:"completed"`
	// Error is what the API server said instead, "" if it admitted the pod.
	Error string `json:"error,omitempty"`
}

// PartOf and Product are the label by which an object of the product is known, NameLabel the one
// that names its program, and Prefix how these names begin.
const (
	PartOf, Product = "app.kubernetes.io/part-of", "deviceshare"
	NameLabel       = "app.kubernetes.io/name"
	Prefix          = "deviceshare-"
)

// addObject takes in a program or the webhooks of a registration. It reports whether it is one of
// those.
func (n *Installation) addObject(object any) bool {
	switch o := object.(type) {
	case *corev1.Pod:
		return n.addPod(o)
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			n.addHook(o.Labels, o.Webhooks[i].Name, &o.Webhooks[i].ClientConfig)
		}
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			n.addHook(o.Labels, o.Webhooks[i].Name, &o.Webhooks[i].ClientConfig)
		}
	default:
		return false
	}
	return true
}

func (n *Installation) addPod(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil || hasEnded(p) {
		return false
	}
	part := ""
	if p.Labels[PartOf] == Product {
		part = strings.TrimPrefix(p.Labels[NameLabel], Prefix)
	}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		image := c.Image[strings.LastIndexByte(c.Image, '/')+1:]
		legacy := strings.HasPrefix(image, "volcano-vgpu-device-plugin") || strings.HasPrefix(image, "volcano-device-plugin")
		program := Program{Namespace: p.Namespace, Pod: p.Name, Node: p.Spec.NodeName, Owner: ownerOf(p), Part: part, Image: image, Legacy: legacy, Ready: isReady(p)}
		words := slices.Concat(c.Command, c.Args)
		if part == "scheduler" || part == "" && rivals.RunsVolcano(rivals.Container{Image: c.Image, Words: words}) {
			program.Schedulers = rivals.SchedulerNames(words)
		}
		if part != "" || legacy || program.Schedulers != nil {
			n.Programs = append(n.Programs, program)
			return true
		}
	}
	return false
}

func (n *Installation) addHook(labels map[string]string, name string, c *admissionv1.WebhookClientConfig) {
	if labels[PartOf] != Product {
		return
	}
	h := Hook{Name: name, HasCA: len(c.CABundle) > 0}
	if c.Service != nil {
		h.Namespace, h.Service = c.Service.Namespace, c.Service.Name
	}
	n.Hooks = append(n.Hooks, h)
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// ownerOf is what a person would delete or scale. The name of a ReplicaSet is that of its
// Deployment with a hash.
func ownerOf(p *corev1.Pod) string {
	for _, o := range p.OwnerReferences {
		if o.Kind == "ReplicaSet" {
			return "deployment " + o.Name[:max(0, strings.LastIndexByte(o.Name, '-'))]
		}
		return strings.ToLower(o.Kind) + " " + o.Name
	}
	return ""
}

func (n *Installation) sort() {
	if n == nil {
		return
	}
	slices.SortFunc(n.Programs, func(a, b Program) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	slices.SortFunc(n.Hooks, func(a, b Hook) int { return cmp.Compare(a.Name, b.Name) })
}
