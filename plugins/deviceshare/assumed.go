// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// errWithdrawn stops a bind whose decision was given up.
var errWithdrawn = errors.New("the scheduler gave up this placement before the pod was bound")

// assumption is a placement that was decided here and whose annotations have
// not come back from the API server yet. It is not changed once it is stored.
type assumption struct {
	pod       *corev1.Pod
	job       api.JobID
	node      string
	placement sharing.Placement
	// annotations go on the Binding. When err is set there are none and the pod
	// must not be bound.
	annotations map[string]string
	err         error
	// fallback is what the pod is told once it is bound, if its devices are not in
	// the mode it named first.
	fallback string
	// underway says that the bind call has not returned. Until then no snapshot
	// can tell what became of it.
	underway bool
}

// assumptions are the placements of pods between the decision and the first
// snapshot that shows it. A bind that failed is not dropped at once: Volcano
// keeps the pod on the node until it has asked the API server what happened,
// and so long its devices count as taken.
//
// Safe for concurrent use: sessions add and settle, binding goroutines read and
// mark.
type assumptions struct {
	mu      sync.Mutex
	byOwner map[sharing.Owner]*assumption
	// touched are the nodes whose assumptions changed since touchedNodes was
	// last called.
	touched map[string]struct{}
}

func newAssumptions() *assumptions {
	return &assumptions{byOwner: map[sharing.Owner]*assumption{}, touched: map[string]struct{}{}}
}

// assume stores a decision whose bind is about to begin.
func (a *assumptions) assume(o sharing.Owner, as assumption) {
	a.mu.Lock()
	defer a.mu.Unlock()
	as.underway = true
	if old, ok := a.byOwner[o]; ok {
		a.touched[old.node] = struct{}{}
	}
	a.byOwner[o] = &as
	a.touched[as.node] = struct{}{}
}

// withdraw notes that a session gave up a decision after it was assumed. Whether
// the bind had begun is not known: it is stopped if it has not, and the next
// snapshot tells.
func (a *assumptions) withdraw(o sharing.Owner) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if as, ok := a.byOwner[o]; ok {
		done := *as
		done.underway, done.err = false, errWithdrawn
		a.byOwner[o] = &done
	}
}

func (a *assumptions) drop(o sharing.Owner) {
	if as, ok := a.byOwner[o]; ok {
		a.touched[as.node] = struct{}{}
		delete(a.byOwner, o)
	}
}

// get returns what is assumed of an owner.
func (a *assumptions) get(o sharing.Owner) (assumption, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	as, ok := a.byOwner[o]
	if !ok {
		return assumption{}, false
	}
	return *as, true
}

// returned notes that the bind call to a node has come back, with whatever
// answer: what became of the pod is for the next snapshots to tell.
func (a *assumptions) returned(o sharing.Owner, node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if as, ok := a.byOwner[o]; ok && as.node == node {
		done := *as
		done.underway = false
		a.byOwner[o] = &done
	}
}

// len is the number of assumptions.
func (a *assumptions) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.byOwner)
}

// settle drops what the snapshot confirms, by showing the annotations, or
// refutes, by not having the pod where it was assumed.
func (a *assumptions) settle(nodes map[string]*api.NodeInfo, jobs map[api.JobID]*api.JobInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for o, as := range a.byOwner {
		switch pod, there := as.find(nodes, jobs); {
		case there && as.confirmedBy(pod):
			a.drop(o)
		case !there && !as.underway:
			a.drop(o)
		}
	}
}

// touchedNodes returns and forgets the nodes whose assumptions changed.
func (a *assumptions) touchedNodes() map[string]struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.touched
	a.touched = map[string]struct{}{}
	return out
}

// underwayTo returns the placements whose bind to the node has not returned.
// They count even if a snapshot has lost sight of the pod.
func (a *assumptions) underwayTo(node string) map[sharing.Owner]sharing.Placement {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out map[sharing.Owner]sharing.Placement
	for o, as := range a.byOwner {
		if as.node == node && as.underway && as.err == nil {
			if out == nil {
				out = map[sharing.Owner]sharing.Placement{}
			}
			out[o] = as.placement
		}
	}
	return out
}

// find looks for the pod where it was assumed. A node that is not in the
// snapshot says nothing; then the pod's job tells.
func (as *assumption) find(nodes map[string]*api.NodeInfo, jobs map[api.JobID]*api.JobInfo) (*corev1.Pod, bool) {
	if node, ok := nodes[as.node]; ok {
		pod, ok := onNode(node, as.pod)
		if !ok || pod.UID != as.pod.UID {
			return nil, false
		}
		return pod, true
	}
	if job, ok := jobs[as.job]; ok {
		if t, ok := job.Tasks[api.TaskID(as.pod.UID)]; ok && t.NodeName == as.node {
			return t.Pod, true
		}
	}
	return nil, false
}

// confirmedBy reports whether the pod carries exactly the placement that was
// sent. Annotations of an earlier attempt do not confirm anything.
func (as *assumption) confirmedBy(pod *corev1.Pod) bool {
	want, ok := as.annotations[wire.PodPlacement]
	return ok && pod.Annotations[wire.PodPlacement] == want
}
