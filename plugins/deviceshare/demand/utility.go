// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"deviceshare/sharing/wire"
)

// nobody is the scheduler of utility pods: there is none of this name.
const nobody = "vgpu-nobody"

// Wish is a node that is asked for by one utility pod.
type Wish struct {
	Type string
	// Slots is how many a new node of the type offers, under the name Resource.
	Slots    int64
	Resource string
	// Selector, Affinity and Tolerations are those of the pods that would be there.
	Selector    map[string]string
	Affinity    *corev1.NodeAffinity
	Tolerations []corev1.Toleration
}

// wishFor is the wish for a new node.
func wishFor(h *newHost, q *Question) Wish {
	name, spec := q.Settings.Names.Number, &h.pods[0].Object.Spec
	slots := h.of.Node.Status.Allocatable[corev1.ResourceName(name)]
	w := Wish{Type: h.of.Name, Slots: slots.Value(), Resource: name, Selector: maps.Clone(spec.NodeSelector), Tolerations: spec.Tolerations}
	if w.Selector == nil {
		w.Selector = map[string]string{}
	}
	w.Selector[q.TypeLabel] = h.of.Name
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil && spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		w.Affinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution}
	}
	return w
}

func compareWishes(a, b Wish) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.labelValue(), b.labelValue()))
}

// labelValue is equal for equal wishes.
func (w *Wish) labelValue() string {
	text, err := json.Marshal(w)
	if err != nil {
		return "unknown"
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Pod is the utility pod of a wish. It is never bound, and would do nothing if it were.
func (w *Wish) Pod(namespace string) *corev1.Pod {
	slots := corev1.ResourceList{corev1.ResourceName(w.Resource): *resource.NewQuantity(w.Slots, resource.DecimalSI)}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, GenerateName: "vgpu-node-wanted-",
			Labels: map[string]string{wire.UtilityPod: w.labelValue(), "app.kubernetes.io/part-of": "deviceshare"},
		},
		Spec: corev1.PodSpec{
			SchedulerName: nobody, NodeSelector: w.Selector, Tolerations: w.Tolerations,
			AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](0),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "none", Image: "none", ImagePullPolicy: corev1.PullNever,
				Resources:       corev1.ResourceRequirements{Limits: slots, Requests: slots},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
	if w.Affinity != nil {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: w.Affinity}
	}
	return pod
}

// unschedulableCondition is the condition by which autoscalers find a utility pod.
func (w *Wish) unschedulableCondition(now metav1.Time) corev1.PodCondition {
	return corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: now,
		Message: "pods with devices need another node of type " + w.Type + ": this pod has no other purpose than to say so, and is deleted when the node is there",
	}
}

// changes are what has to be done so that the utility pods are those that ought to be.
type changes struct {
	create []Wish
	remove []*corev1.Pod
	// tell are those without their condition: whoever made them did not get so far.
	tell []*corev1.Pod
}

// planChanges says what has to be done.
func planChanges(there []*corev1.Pod, wishes []Wish) changes {
	var c changes
	wanted := map[string]int{}
	for i := range wishes {
		wanted[wishes[i].labelValue()]++
	}
	for _, pod := range slices.SortedFunc(slices.Values(there), oldestFirst) {
		if pod.DeletionTimestamp != nil {
			continue
		}
		key := pod.Labels[wire.UtilityPod]
		switch {
		case wanted[key] == 0:
			c.remove = append(c.remove, pod)
			continue
		case !isUnschedulable(pod):
			c.tell = append(c.tell, pod)
		}
		wanted[key]--
	}
	for _, w := range wishes {
		if key := w.labelValue(); wanted[key] > 0 {
			wanted[key]--
			c.create = append(c.create, w)
		}
	}
	return c
}

func oldestFirst(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}
