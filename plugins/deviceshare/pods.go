// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/podstate"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/podspec/corepod"
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
	// uncertain says that it is not known whether the pod asks for devices.
	uncertain bool
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
	if !corepod.Asks(pod, s.Names) {
		if s.unread && corepod.AsksExtended(pod) {
			return &ask{pod: pod, settings: s, uncertain: true}
		}
		return nil
	}
	neutral := corepod.Read(pod)
	req, mistakes := request.Read(&neutral, s.Names, s.Factor,
		request.WithPolicies(policy.Names()...), request.WithDefaults(s.Defaults))
	a := &ask{pod: pod, settings: s, request: req}
	a.policy, _ = policy.Named(req.Policy)
	if req.Group == "" {
		alike := req
		alike.Owner = ""
		// With quotes: a list of two items must not look like one with a space in it.
		a.shape = fmt.Sprintf("%#v", alike)
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

// concerns reports whether a node must not take the pod without devices. One that
// may ask for devices under a name nobody knows yet concerns nodes that have some.
func (a *ask) concerns(info *api.NodeInfo) bool {
	if a == nil || !a.uncertain {
		return a != nil
	}
	return info != nil && info.Node != nil &&
		(info.Node.Annotations[wire.NodeInventory] != "" || info.Node.Annotations[wire.NodeRegister] != "")
}

// current reports whether the ask was read from this pod under these settings.
func (a *ask) current(pod *corev1.Pod, s *Settings) bool {
	return a != nil && a.pod == pod && a.settings == s
}

// holding is what is known of the devices of one pod on a node. At most one of
// placement and unreadable is set; neither means the pod holds nothing.
type holding struct {
	placement *sharing.Placement
	// unreadable is why the pod's devices are not known.
	unreadable error
	// edited says that the pod's texts are not those it was bound with, which are
	// what counts.
	edited bool
	// unplaced says that the pod was bound without a placement and cannot start.
	unplaced bool
}

// read finds out which devices a pod on the node holds: from what its state believes,
// or from its annotations.
func (n *nodeState) read(pod *corev1.Pod, state podstate.State) holding {
	from := state.Sources(n.name, pod.Annotations, scheduled(pod))
	if from.Given != nil {
		return holding{placement: from.Given, edited: from.Edited}
	}
	annotations := pod.Annotations
	if from.First != nil {
		annotations = from.First.Annotations()
	}
	h := n.decode(pod, annotations)
	if h.placement == nil && from.Otherwise != nil {
		h = holding{placement: from.Otherwise}
	}
	h.edited = from.Edited
	return h
}

// decode reads what a pod on the node holds from annotations.
func (n *nodeState) decode(pod *corev1.Pod, annotations map[string]string) (h holding) {
	names := n.settings.Names
	p, found, err := wire.ReadPlacement(annotations, corepod.Refs(pod, names), n.inventory, n.settings.Factor)
	switch {
	case found && err == nil && p.Node == n.name:
		h.placement = &p
	case !corepod.Asks(pod, podspec.Names{Number: names.Number}):
		// The kubelet never gives such a pod a device: it holds nothing, whatever
		// its annotations say.
	case err != nil:
		h.unreadable = fmt.Errorf("read the placement of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	case found:
		h.unreadable = fmt.Errorf("pod %s/%s is on node %s but its placement is for node %s", pod.Namespace, pod.Name, n.name, p.Node)
	case n.failsClosed() && !started(pod, names):
		h.unplaced = true
	default:
		h.unreadable = fmt.Errorf("pod %s/%s asks for devices and has no placement", pod.Namespace, pod.Name)
	}
	return h
}

// failsClosed reports whether the node's device plugin is ours, which starts no
// container that no scheduler has given devices.
func (n *nodeState) failsClosed() bool { return n.node.Annotations[wire.NodeInventory] != "" }

// started reports whether a container that asks for devices has ever run: then
// there was a placement, and somebody has removed it.
func started(pod *corev1.Pod, names podspec.Names) bool {
	for _, ref := range corepod.Refs(pod, names) {
		for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
			for i := range list {
				if c := &list[i]; ref.Asks && c.Name == ref.Name && (ran(&c.State) || ran(&c.LastTerminationState)) {
					return true
				}
			}
		}
	}
	return false
}

// ran reports whether a container's state shows that it was started.
func ran(s *corev1.ContainerState) bool {
	return s.Running != nil || s.Terminated != nil && !s.Terminated.StartedAt.IsZero()
}

// mayHold reports whether a pod on a node may hold devices: it asks for some, or
// it asked under resource names that the configuration has changed since.
// Annotations alone do not make a holder: anybody can write them on a pod.
func mayHold(pod *corev1.Pod, s *Settings) bool {
	if corepod.Asks(pod, s.Names) {
		return true
	}
	_, placed := pod.Annotations[wire.PodPlacement]
	return placed && corepod.AsksExtended(pod)
}
