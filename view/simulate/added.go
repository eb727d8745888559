// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"sigs.k8s.io/yaml"
	"volcano.sh/apis/pkg/apis/helpers"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/controllers/util"

	"deviceshare/plugins/admission"
	"deviceshare/sharing/wire"
)

// Added are the objects of a file that come into the cluster, in their order.
type Added struct {
	Pods   []*corev1.Pod
	Groups []*schedulingv1beta1.PodGroup
}

// Decode reads pods and pod groups from YAML or JSON, one or several documents or a List of them.
// It is strict: every mistake is told, with the number of its document.
func Decode(r io.Reader, namespace string) (Added, error) {
	var out Added
	var mistakes []error
	documents := k8syaml.NewYAMLReader(bufio.NewReader(r))
	for n := 1; ; n++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Added{}, fmt.Errorf("read the pods to add: %w", err)
		}
		if err := out.decodeDocument(text, fmt.Sprintf("document %d", n)); err != nil {
			mistakes = append(mistakes, err)
		}
	}
	if len(mistakes) > 0 {
		return Added{}, fmt.Errorf("read the pods to add: %w", errors.Join(mistakes...))
	}
	for _, p := range out.Pods {
		inNamespace(&p.ObjectMeta, namespace)
	}
	for _, g := range out.Groups {
		inNamespace(&g.ObjectMeta, namespace)
	}
	return out, nil
}

func inNamespace(m *metav1.ObjectMeta, namespace string) {
	if m.Namespace == "" {
		m.Namespace = namespace
	}
}

func (a *Added) decodeDocument(text []byte, where string) error {
	var kind struct {
		metav1.TypeMeta `json:",inline"`
		Items           []json.RawMessage `json:"items"`
	}
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	var object any
	switch {
	case kind.Kind == "" && len(bytes.TrimSpace(text)) == 0, kind.Kind == "" && onlyComments(text):
		return nil
	case kind.Kind == "List" && kind.APIVersion == "v1", kind.Kind == "PodList" && kind.APIVersion == "v1":
		var mistakes []error
		for i, item := range kind.Items {
			mistakes = append(mistakes, a.decodeDocument(item, fmt.Sprintf("%s: items[%d]", where, i)))
		}
		return errors.Join(mistakes...)
	case kind.Kind == "Pod" && kind.APIVersion == "v1":
		p := &corev1.Pod{}
		a.Pods, object = append(a.Pods, p), p
	case kind.Kind == "PodGroup" && kind.APIVersion == schedulingv1beta1.SchemeGroupVersion.String():
		g := &schedulingv1beta1.PodGroup{}
		a.Groups, object = append(a.Groups, g), g
	default:
		return fmt.Errorf("%s: it is a %q of %q: want Pod of v1, PodGroup of %s, or a List of them; of a workload, add its pods",
			where, kind.Kind, kind.APIVersion, schedulingv1beta1.SchemeGroupVersion)
	}
	if err := yaml.UnmarshalStrict(text, object); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return nil
}

func onlyComments(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

// arrival is a pod as the API server would have it, and its group if it was made for it.
type arrival struct {
	pod   *corev1.Pod
	group *schedulingv1beta1.PodGroup
	// refused is why the webhook would not let it in, "" if it would.
	refused string
}

// admitter does with new pods what the API server, the webhook and Volcano's controller do.
type admitter struct {
	settings  admission.Settings
	classes   []*schedulingv1.PriorityClass
	scheduler string
	born      metav1.Time
	// made is how many pods it has let in: each is a moment younger than the one before.
	made int
}

func (a *admitter) admitPod(p *corev1.Pod) (arrival, error) {
	p = p.DeepCopy()
	a.made++
	if p.Name == "" && p.GenerateName != "" {
		p.Name = fmt.Sprintf("%s%05d", p.GenerateName, a.made)
	}
	where := "pod " + p.Namespace + "/" + p.Name
	switch {
	case p.Name == "":
		return arrival{}, errors.New("a pod to add has no name")
	case p.Spec.NodeName != "":
		return arrival{}, fmt.Errorf("%s: spec.nodeName is set: no scheduler would place it", where)
	case len(p.Spec.Containers) == 0:
		return arrival{}, fmt.Errorf("%s: it has no containers", where)
	}
	p.UID, p.CreationTimestamp = types.UID("simulated/"+p.Namespace+"/"+p.Name), metav1.NewTime(a.born.Add(birthOffset(a.made)))
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	defaults.SetObjectDefaults_Pod(p)
	p, err := applyWebhookPatch(p, a.settings)
	if err != nil {
		return arrival{}, fmt.Errorf("%s: %w", where, err)
	}
	if v := admission.Review(p, a.settings); v.Refused() {
		return arrival{pod: p, refused: v.Message()}, nil
	}
	if err := a.setPriority(p); err != nil {
		return arrival{}, fmt.Errorf("%s: %w", where, err)
	}
	return arrival{pod: p, group: a.ensureGroup(p)}, nil
}

func applyWebhookPatch(p *corev1.Pod, s admission.Settings) (*corev1.Pod, error) {
	operations := admission.Complete(p, s)
	if len(operations) == 0 {
		return p, nil
	}
	before, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("write the pod for the webhook: %w", err)
	}
	text, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("write the patch of the webhook: %w", err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, fmt.Errorf("read the patch of the webhook: %w", err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		return nil, fmt.Errorf("apply the patch of the webhook: %w", err)
	}
	out := &corev1.Pod{}
	if err := json.Unmarshal(after, out); err != nil {
		return nil, fmt.Errorf("read the pod of the webhook: %w", err)
	}
	out.CreationTimestamp = p.CreationTimestamp // of which the text keeps the second
	return out, nil
}

// setPriority gives a pod the priority of its class, or of the default one.
func (a *admitter) setPriority(p *corev1.Pod) error {
	name := p.Spec.PriorityClassName
	i := slices.IndexFunc(a.classes, func(c *schedulingv1.PriorityClass) bool { return c.Name == name || name == "" && c.GlobalDefault })
	switch {
	case i >= 0:
		p.Spec.PriorityClassName, p.Spec.Priority = a.classes[i].Name, &a.classes[i].Value
	case name != "":
		return fmt.Errorf("spec.priorityClassName: the captured cluster has no PriorityClass %q", name)
	default:
		p.Spec.Priority = new(int32)
	}
	return nil
}

// ensureGroup returns the group that Volcano's controller makes for a pod which names none, else
// nil.
func (a *admitter) ensureGroup(p *corev1.Pod) *schedulingv1beta1.PodGroup {
	if p.Spec.SchedulerName != a.scheduler {
		return nil
	}
	for _, key := range []string{wire.GroupName, wire.VolcanoGroupName} {
		if p.Annotations[key] != "" {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, wire.GroupName, p.Annotations[key])
			return nil
		}
	}
	return groupFor(p)
}

// groupFor makes the group of a single pod, and names it on the pod.
func groupFor(p *corev1.Pod) *schedulingv1beta1.PodGroup {
	least := util.CalTaskRequests(p, 1)
	g := &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: helpers.GeneratePodgroupName(p), UID: "group-" + p.UID, CreationTimestamp: p.CreationTimestamp},
		Spec: schedulingv1beta1.PodGroupSpec{
			MinMember: 1, Queue: p.Annotations[schedulingv1beta1.QueueNameAnnotationKey], PriorityClassName: p.Spec.PriorityClassName, MinResources: &least,
		},
		Status: schedulingv1beta1.PodGroupStatus{Phase: schedulingv1beta1.PodGroupPending},
	}
	if v, ok := p.Annotations[schedulingv1beta1.PodPreemptable]; ok {
		metav1.SetMetaDataAnnotation(&g.ObjectMeta, schedulingv1beta1.PodPreemptable, v)
	}
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, wire.GroupName, g.Name)
	return g
}
