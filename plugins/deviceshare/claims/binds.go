// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/plugins/deviceshare/claimstate"
	"deviceshare/sharing"
)

// Bind is a pod that a session gave a claim to.
type Bind struct {
	Owner sharing.Owner
	Name  types.NamespacedName
	Node  string
	// Refusal is why the pod must not be bound, nil if it may be.
	Refusal error

	pod    types.NamespacedName
	inCall bool // its bind call has begun and not returned
}

// Decide notes that a session gave a claim to a pod. decision is nil if the claim has its devices
// already.
func (r *Registry) Decide(pod *corev1.Pod, b Bind, decision *claimstate.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.pod = types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	r.binds[pod.UID] = b
	if decision != nil {
		r.updateRecord(b.Owner, func(rec *record) {
			rec.state = rec.state.After(claimstate.Event{Kind: claimstate.Decide, Pod: pod.UID, Decision: decision})
		})
	}
}

// Withdraw notes that a session gave up what it had given to a pod.
func (r *Registry) Withdraw(pod types.UID) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.withdrawPod(pod)
}

func (r *Registry) withdrawPod(pod types.UID) {
	b, known := r.binds[pod]
	if !known {
		return
	}
	delete(r.binds, pod)
	if r.records[b.Owner] != nil {
		r.updateRecord(b.Owner, func(rec *record) {
			rec.state = rec.state.After(claimstate.Event{Kind: claimstate.Withdraw, Pod: pod})
		})
	}
}

// WithdrawUnless gives up what pods were given that are not on their node any more, as long as
// nothing was written for them: what other plugins do before a bind call can fail, and then Volcano
// takes the pod off the node without one.
func (r *Registry) WithdrawUnless(isThere func(pod types.NamespacedName, uid types.UID, node string) bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for pod, b := range r.binds {
		if !b.inCall && !isThere(b.pod, pod, b.Node) {
			r.withdrawPod(pod)
		}
	}
}

// Write is a claim that is about to be written, or read again, for a pod.
type Write struct {
	Bind
	// Object is the claim as it was last seen.
	Object *resourcev1.ResourceClaim
	// Decision is what to write; nil if the claim has its devices.
	Decision *claimstate.Decision
}

// BeginBind returns what a pod needs of its claim before it is bound. known is false for a pod that
// was given no claim. Whoever calls it holds the claim's lock, see LockClaimOf, and calls EndBind
// at the end. If there is a decision, it calls BeginWrite before it writes the claim, and Observe,
// Fail or Lose after it.
func (r *Registry) BeginBind(pod *corev1.Pod, node string) (w Write, known bool, err error) {
	if r == nil {
		return Write{}, false, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b, known := r.binds[pod.UID]
	rec := r.records[b.Owner]
	switch {
	case !known:
		return Write{}, false, nil
	case b.Refusal != nil:
		return Write{}, true, b.Refusal
	case b.Node != node:
		return Write{}, true, fmt.Errorf("claim %s has its devices on node %s", b.Name, b.Node)
	case rec == nil || rec.claim == nil:
		return Write{}, true, fmt.Errorf("claim %s was deleted", b.Name)
	case rec.held != nil && rec.held.Node != node:
		return Write{}, true, fmt.Errorf("claim %s was given devices on node %s", b.Name, rec.held.Node)
	}
	w = Write{Bind: b, Object: rec.claim.Object}
	if rec.held == nil {
		w.Decision = rec.state.Decision()
		if w.Decision == nil {
			return Write{}, true, fmt.Errorf("claim %s lost its devices before the pod was bound", b.Name)
		}
	}
	b.inCall = true
	r.binds[pod.UID] = b
	return w, true, nil
}

// LockClaimOf keeps other pods of the claim that a pod was given from writing it, until the
// function is called that it returns. A pod that was given none locks nothing.
func (r *Registry) LockClaimOf(pod types.UID) (unlock func()) {
	if r == nil {
		return func() {}
	}
	r.mu.RLock()
	owner := r.binds[pod].Owner
	r.mu.RUnlock()
	if owner == "" {
		return func() {}
	}
	r.locks.LockKey(string(owner))
	return func() { _ = r.locks.UnlockKey(string(owner)) }
}

// BeginWrite notes that a claim is about to be written, based on this object.
func (r *Registry) BeginWrite(owner sharing.Owner, base *resourcev1.ResourceClaim) {
	r.applyEvent(owner, claimstate.Event{Kind: claimstate.Begin, Version: versionOf(base)})
}

// Fail notes that the API server did not write a claim, and will not.
func (r *Registry) Fail(owner sharing.Owner, pod types.UID) {
	r.applyEvent(owner, claimstate.Event{Kind: claimstate.Fail, Pod: pod})
}

// Lose notes that it is not known whether the API server wrote a claim.
func (r *Registry) Lose(owner sharing.Owner) {
	r.applyEvent(owner, claimstate.Event{Kind: claimstate.Lose})
}

// IsUnanswered reports whether it is not known whether the API server wrote a claim.
func (r *Registry) IsUnanswered(owner sharing.Owner) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	rec := r.records[owner]
	return rec != nil && rec.state.Phase() == claimstate.Unanswered
}

// Settle notes that a write of which nobody knows whether it happened will not happen any more.
func (r *Registry) Settle(owner sharing.Owner) {
	r.applyEvent(owner, claimstate.Event{Kind: claimstate.Settle})
}

// EndBind notes that the bind call of a pod has returned.
func (r *Registry) EndBind(pod types.UID) { r.Withdraw(pod) }

func (r *Registry) applyEvent(owner sharing.Owner, e claimstate.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.records[owner] != nil {
		r.updateRecord(owner, func(rec *record) { rec.state = rec.state.After(e) })
	}
}
