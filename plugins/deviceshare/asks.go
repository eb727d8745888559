// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/arguments"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// ask is what one pod asks for, read once per pod object and settings.
type ask struct {
	pod      *corev1.Pod
	settings *nodes.Settings
	request  sharing.PodRequest
	// amounts is equal for pods that ask for the same, whatever neighbours they accept. shape is
	// equal for those that a node answers alike if nobody there selects its neighbours by name; ""
	// for one whose answer depends on which pod it is.
	amounts, shape string
	// looks is what lookShape returns, once it was called.
	looks string
	// kind is what nodes remember their answers by, nil before a session has seen the
	// pod. The session goroutine sets it before workers ask.
	kind sessionKind
	// uncertain says that the pod may ask for devices under a name nobody knows yet.
	uncertain bool
	// policy has no name if the pod names none.
	policy policy.Policy
	// seen are the claims that the pod names, as reader knew them; nil for a pod without any. claim
	// is the one by which it asks, nil if it asks by resources.
	seen   []seenClaim
	reader *claimReader
	claim  *claimAsk
	// mistakes is why no node can ever serve the pod, nil if one may.
	mistakes error
	// last is what was last said about a refusal.
	last atomic.Pointer[cachedRefusal]
	// toldTooLarge is what the user was told when no device is large enough. It is handed on when
	// the pod is read again. The session goroutine owns it.
	toldTooLarge string
}

// sessionKind is what a pod asks for as nodes remember it, and whether another asked for the same
// before: new answers are remembered for those only. The kind is nil if answers depend on which pod
// it is.
type sessionKind struct {
	*nodes.Kind
	repeated bool
}

// cachedRefusal is a refusal with its text. Most nodes refuse a pod for the same reasons, and
// formatting the text takes longer than finding the refusal.
type cachedRefusal struct {
	refused sharing.Refusals
	text    string
}

// refusalText returns the text of a refusal as it stands in the pod's event, where
// Volcano writes the number of nodes in front of it. Safe for concurrent use.
func (a *ask) refusalText(r *sharing.Refusals) string {
	if last := a.last.Load(); last != nil && last.refused == *r {
		return last.text
	}
	text := "node(s) where " + r.String()
	a.last.Store(&cachedRefusal{refused: *r, text: text})
	return text
}

// readAsk reads what a pod asks for; nil if it asks for no devices. That of a pod which asks by
// names that nobody serves, or has claims that nobody allocates, has mistakes.
func readAsk(pod *corev1.Pod, s *nodes.Settings, r *claimReader) *ask {
	if r != nil && len(pod.Spec.ResourceClaims) > 0 && !nodes.IsScheduled(pod) { // Volcano sets spec.nodeName in sessions
		if a := r.readClaimAsk(pod, s); a != nil {
			return a
		}
	}
	if err := requireAllocated(pod, s); err != nil {
		return &ask{pod: pod, settings: s, mistakes: err}
	}
	if !corepod.Asks(pod, s.Names) {
		if s.Unread && corepod.AsksExtended(pod) {
			return &ask{pod: pod, settings: s, uncertain: true}
		}
		if !corepod.AsksUnserved(pod, s.Names) {
			return nil
		}
	}
	req, mistakes := s.ReadRequest(pod)
	a := &ask{pod: pod, settings: s, request: req}
	a.usePolicy()
	alike := req
	alike.Owner, alike.Neighbours = "", nil
	// With quotes: a list of two items must not look like one with a space in it.
	a.amounts = fmt.Sprintf("%#v", alike)
	if !req.Neighbours.IsSelective() {
		a.shape = a.amounts
	}
	if len(mistakes) > 0 {
		a.mistakes = fmt.Errorf("node(s) refuse the pod, because its device request cannot be read: %s", strings.Join(request.Texts(mistakes), "; "))
	}
	return a
}

// usePolicy finds the policy that the request names.
func (a *ask) usePolicy() { a.policy, _ = policy.Named(a.request.Policy) }

// requireAllocated returns an error if a pod has resource claims that nobody would allocate: bound
// all the same, it would wait on its node for ever.
func requireAllocated(pod *corev1.Pod, s *nodes.Settings) error {
	if len(pod.Spec.ResourceClaims) == 0 || pod.Spec.NodeName != "" || s.AllocatesClaims {
		return nil
	}
	var names []string
	for i := range pod.Spec.ResourceClaims {
		names = append(names, pod.Spec.ResourceClaims[i].Name)
	}
	return fmt.Errorf("node(s) refuse the pod, because this scheduler allocates no resource claims (spec.resourceClaims: %s) without %s: true among the arguments of its plugin predicates",
		strings.Join(names, ", "), arguments.AllocateClaims)
}

// owner returns who holds what the pod is given: the pod, or its claim.
func (a *ask) owner() sharing.Owner {
	if a.claim != nil {
		return a.claim.owner
	}
	return sharing.Owner(a.pod.UID)
}

// served returns the request, nil if there are no devices to be given for it.
func (a *ask) served() *sharing.PodRequest {
	if a == nil || a.mistakes != nil || a.uncertain {
		return nil
	}
	return &a.request
}

// lookShape is equal for pods to which every node gives the same answer, if nobody selects its
// neighbours by name. The session goroutine calls it.
func (a *ask) lookShape() string {
	if a.looks != "" {
		return a.looks
	}
	spec := &a.pod.Spec
	if a.shape == "" || spec.Affinity != nil {
		a.looks = string(a.pod.UID)
		return a.looks
	}
	tolerated := make([]string, 0, len(spec.Tolerations))
	for i := range spec.Tolerations {
		t := &spec.Tolerations[i]
		tolerated = append(tolerated, fmt.Sprintf("%q %q %q %q", t.Key, t.Operator, t.Value, t.Effect))
	}
	a.looks = fmt.Sprintf("%s %q %q", a.shape, spec.NodeSelector, tolerated)
	return a.looks
}

// needsDevicesOf reports whether the node must not take the pod without devices. For a pod
// that may ask under a name nobody knows yet, that is every node that publishes devices.
func (a *ask) needsDevicesOf(info *api.NodeInfo) bool {
	if a == nil || !a.uncertain {
		return a != nil
	}
	return info != nil && info.Node != nil &&
		(info.Node.Annotations[wire.NodeInventory] != "" || info.Node.Annotations[wire.NodeRegister] != "")
}

// wasReadFrom reports whether the ask was read from this pod under these settings, and its claims
// are what they were.
func (a *ask) wasReadFrom(pod *corev1.Pod, s *nodes.Settings) bool {
	return a != nil && a.pod == pod && a.settings == s && (a.seen == nil || a.reader.isCurrent(pod, a.seen))
}
