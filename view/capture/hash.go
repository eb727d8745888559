// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// Hash returns the state with every name of a node, namespace, pod, container, group, queue, budget
// and priority class, and the labels, replaced by a hash, and without the messages of schedulers,
// which hold names. Of labels, the keys that Kubernetes and Volcano define stay, and their values
// true and false. Comments of configurations go. Equal names get equal hashes; the salt keeps
// others from trying names, and must be kept by nobody. Texts that cannot be read become texts that
// cannot be read either. The receiver is unchanged.
func (s *State) Hash(salt []byte) *State {
	l := newLabelHasher(salt, s)
	h := l.hasher
	out := &State{Taken: s.Taken, Hashed: true, DeviceConfig: withoutComments(s.DeviceConfig)}
	for _, read := range s.Forbidden {
		read, _, _ = strings.Cut(read, " -n ") // which names a namespace
		out.Forbidden = append(out.Forbidden, read)
	}
	for _, n := range s.Nodes {
		out.Nodes = append(out.Nodes, h.hashNode(n.DeepCopy()))
	}
	for _, p := range s.Pods {
		p = h.hashPod(p.DeepCopy())
		replaceAnnotation(&p.ObjectMeta, wire.UserNotBeside, l.hashSelectors)
		out.Pods = append(out.Pods, p)
	}
	for _, g := range s.Groups {
		g = g.DeepCopy()
		h.hashMeta(&g.ObjectMeta)
		g.Spec.Queue, g.Spec.PriorityClassName = h.hashName(g.Spec.Queue), h.hashPriorityClass(g.Spec.PriorityClassName)
		g.Spec.MinTaskMember = hashKeys(h, g.Spec.MinTaskMember)
		out.Groups = append(out.Groups, g)
	}
	out.Queues, out.Quotas = h.hashQueues(s.Queues), h.hashQuotas(s.Quotas)
	out.Scheduling = l.hashScheduling(s.Scheduling)
	out.Sort()
	return out
}

func (h hasher) hashQueues(list []*schedulingv1beta1.Queue) []*schedulingv1beta1.Queue {
	var out []*schedulingv1beta1.Queue
	for _, q := range list {
		q = q.DeepCopy()
		h.hashMeta(&q.ObjectMeta)
		q.Spec.Parent = h.hashName(q.Spec.Parent)
		out = append(out, q)
	}
	return out
}

func (h hasher) hashQuotas(list []*corev1.ResourceQuota) []*corev1.ResourceQuota {
	var out []*corev1.ResourceQuota
	for _, q := range list {
		q = q.DeepCopy()
		h.hashMeta(&q.ObjectMeta)
		if q.Spec.ScopeSelector != nil {
			for i := range q.Spec.ScopeSelector.MatchExpressions {
				for j, class := range q.Spec.ScopeSelector.MatchExpressions[i].Values {
					q.Spec.ScopeSelector.MatchExpressions[i].Values[j] = h.hashPriorityClass(class)
				}
			}
		}
		out = append(out, q)
	}
	return out
}

type hasher struct{ salt []byte }

// hashName hashes one name; "" stays.
func (h hasher) hashName(s string) string {
	if s == "" {
		return ""
	}
	mac := hmac.New(sha256.New, h.salt)
	mac.Write([]byte(s))
	return "h" + hex.EncodeToString(mac.Sum(nil)[:6])
}

func (h hasher) hashMeta(m *metav1.ObjectMeta) {
	m.Namespace, m.Name, m.UID = h.hashName(m.Namespace), h.hashName(m.Name), types.UID(h.hashName(string(m.UID)))
}

func replaceAnnotation(m *metav1.ObjectMeta, key string, change func(string) string) {
	if value, ok := m.Annotations[key]; ok {
		m.Annotations[key] = change(value)
	}
}

// unreadable stands for a text that could not be read and may hold names.
const unreadable = "{unreadable"

func (h hasher) hashNode(n *corev1.Node) *corev1.Node {
	h.hashMeta(&n.ObjectMeta)
	replaceAnnotation(&n.ObjectMeta, wire.NodeInventory, func(text string) string {
		inv, err := wire.DecodeInventory(text)
		if err != nil {
			return unreadable
		}
		inv.Node = h.hashName(inv.Node)
		if text, err = wire.EncodeInventory(inv); err != nil {
			return unreadable
		}
		return text
	})
	replaceAnnotation(&n.ObjectMeta, wire.NodeCordon, h.hashCordons)
	return n
}

// hashCordons hashes who cordoned devices, and leaves out why.
func (h hasher) hashCordons(text string) string {
	cordons, err := wire.DecodeCordons(text)
	if err != nil {
		return unreadable
	}
	for id, c := range cordons {
		c.By, c.Reason = h.hashName(c.By), ""
		cordons[id] = c
	}
	if text, err = wire.EncodeCordons(cordons); err != nil {
		return unreadable
	}
	return text
}

func (h hasher) hashPod(p *corev1.Pod) *corev1.Pod {
	h.hashMeta(&p.ObjectMeta)
	for _, key := range []string{wire.PodNode, wire.GroupName, wire.VolcanoGroupName} {
		replaceAnnotation(&p.ObjectMeta, key, h.hashName)
	}
	replaceAnnotation(&p.ObjectMeta, wire.PodPlacement, h.hashPlacement)
	h.hashSpec(&p.Spec)
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			list[i].Name = h.hashName(list[i].Name)
		}
	}
	for i := range p.Status.Conditions {
		p.Status.Conditions[i].Message = ""
	}
	return p
}

func (h hasher) hashSpec(s *corev1.PodSpec) {
	s.NodeName, s.PriorityClassName = h.hashName(s.NodeName), h.hashPriorityClass(s.PriorityClassName)
	for i := range s.SchedulingGates {
		s.SchedulingGates[i].Name = h.hashName(s.SchedulingGates[i].Name)
	}
	for i := range s.ResourceClaims {
		s.ResourceClaims[i].Name = h.hashName(s.ResourceClaims[i].Name)
	}
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			list[i].Name = h.hashName(list[i].Name)
		}
	}
}

// hashGroup hashes the parts of namespace/name, as the pods of the group have them.
func (h hasher) hashGroup(s string) string {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok {
		return h.hashName(s)
	}
	return h.hashName(namespace) + "/" + h.hashName(name)
}

func (h hasher) hashPlacement(text string) string {
	p, err := wire.DecodePlacement(text)
	if err != nil {
		return unreadable
	}
	p.Node, p.Group = h.hashName(p.Node), h.hashGroup(p.Group)
	containers := make([]sharing.ContainerShares, len(p.Containers))
	for i, c := range p.Containers {
		c.Container = h.hashName(c.Container)
		containers[i] = c
	}
	p.Containers = containers
	if text, err = wire.EncodePlacement(p); err != nil {
		return unreadable
	}
	return text
}
