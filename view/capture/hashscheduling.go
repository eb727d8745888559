// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// hashScheduling hashes what a simulation needs. Labels, and whatever selects by them, get hashes
// too: equal ones stay equal, so that the same nodes, pods and namespaces are selected. Values that
// are compared as numbers stay as they are, since a hash has no order.
func (l labelHasher) hashScheduling(s *Scheduling) *Scheduling {
	if s == nil {
		return nil
	}
	h := l.hasher
	out := &Scheduling{Config: l.hashConfig(s.Config)}
	for _, n := range s.Nodes {
		n = n.DeepCopy()
		h.hashMeta(&n.ObjectMeta)
		l.nodeLabels(n)
		out.Nodes = append(out.Nodes, n)
	}
	for _, p := range s.Pods {
		out.Pods = append(out.Pods, l.hashSchedulingPod(p.DeepCopy()))
	}
	out.Queues = h.hashQueues(s.Queues)
	for _, c := range s.Classes {
		c = c.DeepCopy()
		c.Name, c.UID = h.hashPriorityClass(c.Name), ""
		out.Classes = append(out.Classes, c)
	}
	for _, b := range s.Budgets {
		out.Budgets = append(out.Budgets, l.hashBudget(b.DeepCopy()))
	}
	for _, n := range s.Namespaces {
		n = n.DeepCopy()
		h.hashMeta(&n.ObjectMeta)
		n.Labels = l.hashLabels(n.Labels)
		out.Namespaces = append(out.Namespaces, n)
	}
	return out
}

func (l labelHasher) nodeLabels(n *corev1.Node) {
	n.Labels = l.hashLabels(n.Labels)
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		t.Key, t.Value = l.hashLabelKey(t.Key), l.hashLabelValue(t.Key, t.Value)
	}
}

// nodesOf hashes what a pod says of the nodes that it may be on, and its affinity to pods.
func (l labelHasher) nodesOf(p *corev1.Pod) {
	p.Spec.NodeSelector = l.hashLabels(p.Spec.NodeSelector)
	for i := range p.Spec.Tolerations {
		t := &p.Spec.Tolerations[i]
		t.Key, t.Value = l.hashLabelKey(t.Key), l.hashLabelValue(t.Key, t.Value)
	}
	l.hashAffinity(p)
}

// hashPriorityClass hashes the name of a priority class, but for those of Kubernetes itself.
func (h hasher) hashPriorityClass(name string) string {
	if strings.HasPrefix(name, "system-") {
		return name
	}
	return h.hashName(name)
}

// hashKeys hashes the names that are the keys of a map.
func hashKeys[V any](h hasher, in map[string]V) map[string]V {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]V, len(in))
	for name, value := range in {
		out[h.hashName(name)] = value
	}
	return out
}

func (l labelHasher) hashBudget(b *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
	l.hashMeta(&b.ObjectMeta)
	b.Spec.Selector = l.hashSelector(b.Spec.Selector)
	b.Status.DisruptedPods = hashKeys(l.hasher, b.Status.DisruptedPods)
	return b
}

// labelHasher hashes labels. numbers are the keys whose values are compared as numbers.
type labelHasher struct {
	hasher
	numbers map[string]bool
}

// newLabelHasher returns a hasher that knows which labels the pods of a state compare as numbers.
func newLabelHasher(salt []byte, s *State) labelHasher {
	l := labelHasher{hasher{salt}, map[string]bool{}}
	if s.Scheduling == nil {
		return l
	}
	for _, p := range s.Scheduling.Pods {
		for _, t := range nodeTerms(p) {
			for _, r := range t.MatchExpressions {
				if r.Operator == corev1.NodeSelectorOpGt || r.Operator == corev1.NodeSelectorOpLt {
					l.numbers[r.Key] = true
				}
			}
		}
	}
	return l
}

// hashLabelKey hashes the key of a label or a taint, but for those that Kubernetes and Volcano
// define.
func (l labelHasher) hashLabelKey(key string) string {
	if isDefinedKey(key) {
		return key
	}
	return l.hashName(key)
}

// isDefinedKey reports whether Kubernetes or Volcano defines a key, and not whoever sets it.
func isDefinedKey(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return slices.ContainsFunc([]string{"kubernetes.io", "k8s.io", "volcano.sh"}, func(known string) bool {
		return domain == known || strings.HasSuffix(domain, "."+known)
	})
}

// hashLabelValue hashes the value of a label or a taint. The values true and false of a key that is
// not hashed stay: they are no names, and the scheduler reads whether pods may move or be
// preempted.
func (l labelHasher) hashLabelValue(key, value string) string {
	isAnswer := isDefinedKey(key) && (value == "true" || value == "false")
	if isAnswer || l.numbers[key] {
		return value
	}
	return l.hashName(value)
}

func (l labelHasher) hashLabels(in map[string]string) map[string]string {
	if in == nil {
		return nil
	}
	out := make(map[string]string, len(in))
	for key, value := range in {
		out[l.hashLabelKey(key)] = l.hashLabelValue(key, value)
	}
	return out
}

// hashSelectors hashes the labels by which a pod names others.
func (l labelHasher) hashSelectors(text string) string {
	hashed, readable := request.ReplaceLabels(text, l.hashLabelKey, l.hashLabelValue)
	if !readable {
		return unreadable
	}
	return hashed
}

// nodeTerms are those of a pod's node affinity.
func nodeTerms(p *corev1.Pod) []*corev1.NodeSelectorTerm {
	if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return nil
	}
	var terms []*corev1.NodeSelectorTerm
	a := p.Spec.Affinity.NodeAffinity
	if required := a.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		for i := range required.NodeSelectorTerms {
			terms = append(terms, &required.NodeSelectorTerms[i])
		}
	}
	for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		terms = append(terms, &a.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference)
	}
	return terms
}

func (l labelHasher) hashSchedulingPod(p *corev1.Pod) *corev1.Pod {
	l.hashMeta(&p.ObjectMeta)
	p.Labels = l.hashLabels(p.Labels)
	for _, key := range []string{wire.GroupName, wire.VolcanoGroupName, "volcano.sh/task-spec", "scheduling.volcano.sh/queue-name"} {
		replaceAnnotation(&p.ObjectMeta, key, l.hashName)
	}
	spec := &p.Spec
	spec.PriorityClassName = l.hashPriorityClass(spec.PriorityClassName)
	l.hashSpec(spec)
	l.nodesOf(p)
	for i := range spec.TopologySpreadConstraints {
		c := &spec.TopologySpreadConstraints[i]
		c.TopologyKey, c.LabelSelector = l.hashLabelKey(c.TopologyKey), l.hashSelector(c.LabelSelector)
		l.hashLabelKeys(c.MatchLabelKeys)
	}
	return p
}

func (l labelHasher) hashLabelKeys(list []string) {
	for i := range list {
		list[i] = l.hashLabelKey(list[i])
	}
}

func (l labelHasher) hashAffinity(p *corev1.Pod) {
	for _, t := range nodeTerms(p) {
		for i := range t.MatchExpressions {
			r := &t.MatchExpressions[i]
			for k := range r.Values {
				r.Values[k] = l.hashLabelValue(r.Key, r.Values[k])
			}
			r.Key = l.hashLabelKey(r.Key)
		}
		for i := range t.MatchFields { // the only field is the name
			l.hashNames(t.MatchFields[i].Values)
		}
	}
	if p.Spec.Affinity == nil {
		return
	}
	if a := p.Spec.Affinity.PodAffinity; a != nil {
		l.podTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := p.Spec.Affinity.PodAntiAffinity; a != nil {
		l.podTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

func (h hasher) hashNames(list []string) {
	for i := range list {
		list[i] = h.hashName(list[i])
	}
}

func (l labelHasher) podTerms(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
	term := func(t *corev1.PodAffinityTerm) {
		t.TopologyKey, t.LabelSelector, t.NamespaceSelector = l.hashLabelKey(t.TopologyKey), l.hashSelector(t.LabelSelector), l.hashSelector(t.NamespaceSelector)
		l.hashNames(t.Namespaces)
		l.hashLabelKeys(t.MatchLabelKeys)
		l.hashLabelKeys(t.MismatchLabelKeys)
	}
	for i := range required {
		term(&required[i])
	}
	for i := range preferred {
		term(&preferred[i].PodAffinityTerm)
	}
}

func (l labelHasher) hashSelector(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s == nil {
		return nil
	}
	s.MatchLabels = l.hashLabels(s.MatchLabels)
	for i := range s.MatchExpressions {
		r := &s.MatchExpressions[i]
		for k, value := range r.Values {
			r.Values[k] = l.hashLabelValue(r.Key, value)
		}
		r.Key = l.hashLabelKey(r.Key)
	}
	return s
}
