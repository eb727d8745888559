// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
)

// requests are what the tasks of a session ask for, each read once.
type requests struct {
	settings *nodes.Settings
	// claims reads what pods ask for by claims, nil if this scheduler allocates none.
	claims *claimReader
	// asks are those of the tasks that this session has tried to place, before those of the last
	// session.
	asks, before map[api.TaskID]*ask
	// kinds are what tasks of this session ask for.
	kinds map[nodes.Kind]sessionKind
	// turn is the task that Volcano is placing.
	turn turn
	// selectsByName says that a pod of the session, or on a node, accepts others by their labels or
	// groups.
	selectsByName bool
}

func newRequests(s *nodes.Settings, r *claimReader, before map[api.TaskID]*ask, selectsByName bool) requests {
	return requests{settings: s, claims: r, before: before, asks: map[api.TaskID]*ask{}, kinds: map[nodes.Kind]sessionKind{}, selectsByName: selectsByName}
}

// turn is a task with what it asks for, which need not be looked up for each node then.
type turn struct {
	task *api.TaskInfo
	ask  *ask
	kind sessionKind
}

// isFor reports whether it is the turn of this task.
func (u *turn) isFor(t *api.TaskInfo) bool { return u.task == t }

// askOf returns what a task asks for, nil if it asks for no devices. Workers call
// it: it stores nothing.
func (r *requests) askOf(t *api.TaskInfo) *ask {
	if r.turn.isFor(t) {
		return r.turn.ask
	}
	if a, ok := r.asks[t.UID]; ok && (a == nil || a.wasReadFrom(t.Pod, r.settings)) {
		return a
	}
	return readAsk(t.Pod, r.settings, r.claims)
}

// rememberAsk keeps what a task asks for, from the last session if it has not
// changed. The session goroutine calls it before workers ask for the task.
func (r *requests) rememberAsk(t *api.TaskInfo) *ask {
	if a, ok := r.asks[t.UID]; ok && (a == nil || a.wasReadFrom(t.Pod, r.settings)) {
		return a
	}
	before := r.before[t.UID]
	a, known := before, before.wasReadFrom(t.Pod, r.settings)
	if !known {
		a = readAsk(t.Pod, r.settings, r.claims)
		if a != nil && before != nil {
			a.toldTooLarge = before.toldTooLarge
		}
	}
	r.selectsByName = r.selectsByName || a != nil && a.request.Neighbours.SelectsByName()
	switch {
	case a == nil:
		r.noteKind(nodes.Kind{Needs: needsOf(t)}, false)
	case a.shape != "":
		a.kind = r.noteKind(nodes.Kind{Shape: a.shape, Needs: needsOf(t)}, known)
	}
	r.asks[t.UID] = a
	return a
}

// noteKind notes what a task asks for. Again says that the task was there in the last session.
func (r *requests) noteKind(of nodes.Kind, again bool) sessionKind {
	k, seen := r.kinds[of]
	if !seen {
		k.Kind = nodes.NewKind(of.Shape, of.Needs)
	}
	k.repeated = seen || again
	r.kinds[of] = k
	return k
}

// shapeOf is equal for tasks that every node answers alike.
func (r *requests) shapeOf(a *ask) string {
	return a.lookShape() + r.namesOf(a)
}

// namesOf is what others select a task by, "" as long as nobody does.
func (r *requests) namesOf(a *ask) string {
	if a == nil || a.request.Neighbours == nil || !r.selectsByName {
		return ""
	}
	return fmt.Sprintf(" %q %q", a.request.Neighbours.Group, a.request.Neighbours.Labels)
}

// kindOn is the kind of a task on a node with this ledger: none where pods select others by what
// the kind does not say.
func kindOn(l *sharing.Ledger, a *ask, k sessionKind) sessionKind {
	if a != nil && l != nil && l.SelectsByName() {
		return sessionKind{}
	}
	return k
}

// kindOf is what the task asks for.
func (r *requests) kindOf(a *ask, t *api.TaskInfo) sessionKind {
	switch {
	case a != nil:
		return a.kind
	case r.turn.isFor(t):
		return r.turn.kind
	}
	return r.kinds[nodes.Kind{Needs: needsOf(t)}]
}
