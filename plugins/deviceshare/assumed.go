// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// errWithdrawn stops a bind whose decision was given up.
var errWithdrawn = errors.New("the scheduler gave up this placement before the pod was bound")

// stage is how far the bind of an assumption has come.
type stage int

const (
	// handedOver: the decision is committed and the bind call has not begun. It
	// may never begin: what other plugins do before it can fail, and then Volcano
	// takes the pod off the node without calling the binder.
	handedOver stage = iota
	// calling: the bind call has begun and not returned. Until then no snapshot can
	// tell what became of it.
	calling
	// returned: the bind call has come back with an error, or the decision was
	// given up. What became of the pod is for the next snapshots to tell.
	returned
	// accepted: the API server has said that it wrote node name and annotations.
	accepted
)

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
	stage    stage
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

// assume stores a decision that is about to be handed over for binding.
func (a *assumptions) assume(o sharing.Owner, as assumption) {
	a.mu.Lock()
	defer a.mu.Unlock()
	as.stage = handedOver
	if old, ok := a.byOwner[o]; ok {
		a.touched[old.node] = struct{}{}
	}
	a.byOwner[o] = &as
	a.touched[as.node] = struct{}{}
}

// withdraw notes that a session gave up a decision after it was assumed. A bind
// that has not begun is stopped; one that has is left alone, since only its answer
// and the next snapshots tell.
func (a *assumptions) withdraw(o sharing.Owner) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if as, ok := a.byOwner[o]; ok && as.stage == handedOver {
		a.giveUp(o, as)
	}
}

// giveUp makes a bind that begins later fail. The lock is held.
func (a *assumptions) giveUp(o sharing.Owner, as *assumption) {
	done := *as
	done.stage, done.err = returned, errWithdrawn
	a.byOwner[o] = &done
	a.touched[as.node] = struct{}{}
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

// begin notes that the bind call to a node is about to be made, and returns what
// is to be sent. From here on the decision cannot be given up. An error means that
// the call must not be made. ok is false for a pod of which nothing is assumed.
func (a *assumptions) begin(o sharing.Owner, t *api.TaskInfo) (as assumption, ok bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, ok := a.byOwner[o]
	switch {
	case !ok:
		return assumption{}, false, nil
	case now.node != t.NodeName:
		return *now, true, fmt.Errorf("bind pod %s/%s to node %s: its devices are on node %s", t.Namespace, t.Name, t.NodeName, now.node)
	}
	done := *now
	done.stage = calling
	if now.err != nil {
		done.stage = returned
	}
	a.byOwner[o] = &done
	return done, true, now.err
}

// end notes that the bind call to a node has come back, and whether the API server
// has said that it was done. An error says nothing: the answer may have been lost.
func (a *assumptions) end(o sharing.Owner, node string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if as, ok := a.byOwner[o]; ok && as.node == node && as.stage == calling {
		done := *as
		done.stage = returned
		if err == nil {
			done.stage = accepted
		}
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
// refutes, by not having the pod where it was assumed. A pod that is not there
// before its bind call has begun was taken off the node by Volcano: the decision is
// given up first, so that a call that begins all the same fails, and dropped by the
// next snapshot.
func (a *assumptions) settle(nodes map[string]*api.NodeInfo, jobs map[api.JobID]*api.JobInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for o, as := range a.byOwner {
		switch pod, there := as.find(nodes, jobs); {
		case there && as.confirmedBy(pod):
			a.drop(o)
		case there || as.stage == calling:
		case as.stage == handedOver:
			a.giveUp(o, as)
		default:
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

// underwayTo returns the placements whose bind call to the node has not returned.
// They count even if a snapshot has lost sight of the pod.
func (a *assumptions) underwayTo(node string) map[sharing.Owner]sharing.Placement {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out map[sharing.Owner]sharing.Placement
	for o, as := range a.byOwner {
		if as.node == node && as.stage <= calling && as.err == nil {
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

// confirmedBy reports whether the pod carries exactly the texts that were sent.
// Annotations of an earlier attempt do not confirm anything.
func (as *assumption) confirmedBy(pod *corev1.Pod) bool {
	if _, sent := as.annotations[wire.PodPlacement]; !sent {
		return false
	}
	return textsOf(as.annotations).sameIn(pod.Annotations)
}
