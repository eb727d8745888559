// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/plugins/podspec"
	"deviceshare/sharing"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// ask is what one pod asks for, read once per pod object and settings.
type ask struct {
	pod      *corev1.Pod
	settings *Settings
	request  sharing.PodRequest
	// shape is equal for pods that every node answers alike; "" for one whose
	// answer depends on which pod it is.
	shape string
	// repeated is set when a pod of this shape was asked about before. Answers are
	// remembered for those only. The session goroutine sets it before workers ask.
	repeated bool
	// policy is nil if the pod names none.
	policy policy.Policy
	// mistakes, when not empty, are why no node can ever serve the pod.
	mistakes string
	// last is what was last said about a refusal.
	last atomic.Pointer[said]
	// explained is set once the user was told that no device is large enough.
	explained atomic.Bool
}

// said is a refusal with its text. Most nodes of a cluster refuse a pod for the
// same reasons, and the text takes longer to write than the refusal to find.
type said struct {
	refused sharing.Refusals
	text    string
}

// said returns the text of a refusal as it stands in the pod's event, where
// Volcano writes the number of nodes in front of it. Safe for concurrent use.
func (a *ask) said(r *sharing.Refusals) string {
	if last := a.last.Load(); last != nil && last.refused == *r {
		return last.text
	}
	text := "node(s) where " + r.String()
	a.last.Store(&said{refused: *r, text: text})
	return text
}

// readAsk reads what a pod asks for; nil if it asks for no devices.
func readAsk(pod *corev1.Pod, s *Settings) *ask {
	if !podspec.Asks(pod, s.Names) {
		return nil
	}
	neutral := podspec.Read(pod)
	req, mistakes := request.Read(&neutral, s.Names, s.Factor,
		request.WithPolicies(policy.Names()...), request.WithDefaults(s.Defaults))
	a := &ask{pod: pod, settings: s, request: req}
	a.policy, _ = policy.Named(req.Policy)
	if req.Group == "" {
		alike := req
		alike.Owner = ""
		a.shape = fmt.Sprintf("%+v", alike)
	}
	texts := make([]string, 0, len(mistakes))
	for _, m := range mistakes {
		texts = append(texts, m.String())
	}
	if len(texts) > 0 {
		a.mistakes = "node(s) refuse the pod, because its device request cannot be read: " + strings.Join(texts, "; ")
	}
	return a
}

// current reports whether the ask was read from this pod under these settings.
func (a *ask) current(pod *corev1.Pod, s *Settings) bool {
	return a != nil && a.pod == pod && a.settings == s
}

// holding is what is known of the devices of one pod on a node. At most one of
// the fields is set; none means the pod holds nothing.
type holding struct {
	placement *sharing.Placement
	// unreadable is why the pod's devices are not known.
	unreadable error
}

// readHolding finds out which devices a pod on a node holds: from its
// annotations, or from what was assumed when it was bound. An assumption that
// the pod's annotations do not confirm goes first, since they may be left from
// an earlier attempt, until the API server says that the pod is scheduled.
func readHolding(pod *corev1.Pod, inv *sharing.Inventory, s *Settings, assumed *assumptions) holding {
	var h holding
	as, isAssumed := assumed.get(sharing.Owner(pod.UID))
	isAssumed = isAssumed && as.node == inv.Node
	if isAssumed && (as.underway || !scheduled(pod)) {
		h.placement = &as.placement
		return h
	}
	p, found, err := wire.ReadPlacement(pod.Annotations, podspec.ContainerRefs(pod, s.Names), inv, s.Factor)
	switch {
	case found && err == nil && p.Node == inv.Node:
		h.placement = &p
	case isAssumed:
		h.placement = &as.placement
	case !podspec.Asks(pod, request.Names{Number: s.Names.Number}):
		// The kubelet never gives such a pod a device: it holds nothing, whatever
		// its annotations say.
	case err != nil:
		h.unreadable = fmt.Errorf("read the placement of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	case found:
		h.unreadable = fmt.Errorf("pod %s/%s is on node %s but its placement is for node %s", pod.Namespace, pod.Name, inv.Node, p.Node)
	default:
		h.unreadable = fmt.Errorf("pod %s/%s asks for devices and has no placement", pod.Namespace, pod.Name)
	}
	return h
}

// mayHold reports whether a pod on a node may hold devices: it asks for some, or
// it asked under resource names that the configuration has changed since.
// Annotations alone do not make a holder: anybody can write them on a pod.
func mayHold(pod *corev1.Pod, s *Settings) bool {
	if podspec.Asks(pod, s.Names) {
		return true
	}
	_, placed := pod.Annotations[wire.PodPlacement]
	return placed && podspec.AsksExtended(pod)
}

// scheduled reports whether the API server has this pod bound to a node. The
// node name does not tell: Volcano writes it into the pods of its own cache
// before they are bound.
func scheduled(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// over reports whether the pod will never run again.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
