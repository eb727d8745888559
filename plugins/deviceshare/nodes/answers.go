// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"hash/fnv"
	"sync/atomic"

	"deviceshare/sharing"
	"deviceshare/sharing/worth"
)

// Question is what a node was asked. It holds everything that an answer depends on, so that equal
// questions have equal answers.
type Question struct {
	// Ledger is that of the node. It must not be changed any more.
	Ledger *sharing.Ledger
	// Era is another one whenever anything has changed that concerns all nodes: the policies, what
	// they have learned, the backends.
	Era uint64
	// Kind is what the pod asks for, nil if answers depend on which pod it is.
	Kind *Kind
	// Free is what the node has beside its devices, where that matters.
	Free worth.Amounts
}

// Kind is what pods ask for that every node answers alike. Pods with equal ones need not have the
// same. One that NewKind has not made serves as a key of a map only.
type Kind struct {
	// Shape tells requests for devices apart; it is "" for pods without devices.
	Shape string
	// Needs are what the pod needs beside devices.
	Needs worth.Amounts
	slot  int
}

// NewKind returns what such pods ask for.
func NewKind(shape string, needs worth.Amounts) *Kind {
	sum := fnv.New32a()
	_, _ = fmt.Fprint(sum, shape, needs) // a hash takes everything
	return &Kind{Shape: shape, Needs: needs, slot: int(sum.Sum32() % kinds)}
}

func (q *Question) equals(other *Question) bool {
	return q.Ledger == other.Ledger && q.Era == other.Era && q.Free == other.Free && (q.Kind == other.Kind || *q.Kind == *other.Kind)
}

// kinds is for how many kinds of pods a node remembers its answers, if they do not share a place.
// Clusters see tens of kinds; those that arrive in numbers are few at a time.
const kinds = 8

// answerCache keeps the last answers, for each kind the last. Safe for concurrent use.
type answerCache[Answer any] struct {
	last [kinds]atomic.Pointer[answered[Answer]]
}

type answered[Answer any] struct {
	question Question
	answer   Answer
}

func (m *answerCache[Answer]) storeAnswer(q Question, a Answer) {
	m.last[q.Kind.slot].Store(&answered[Answer]{question: q, answer: a})
}

// findAnswer returns the answer to the same question, nil if it is not known. It must not be
// changed.
func (m *answerCache[Answer]) findAnswer(q *Question) *Answer {
	if q.Kind == nil {
		return nil
	}
	if last := m.last[q.Kind.slot].Load(); last != nil && last.question.equals(q) {
		return &last.answer
	}
	return nil
}

// Remember keeps what devices of the node refuse; nothing, if the pod fits. The question has a
// kind. Safe for concurrent use.
func (n *Node) Remember(q Question, refused sharing.Refusals) { n.refusals.storeAnswer(q, refused) }

// Remembered returns what was kept for the same question, nil if nothing was. It must not be
// changed. Safe for concurrent use.
func (n *Node) Remembered(q *Question) *sharing.Refusals { return n.refusals.findAnswer(q) }

// RememberScore keeps the score of the node. The question has a kind. Safe for concurrent use.
func (n *Node) RememberScore(q Question, score float64) { n.scores.storeAnswer(q, score) }

// RememberedScore returns the score that was kept for the same question, and whether one was.
// Safe for concurrent use.
func (n *Node) RememberedScore(q *Question) (score float64, known bool) {
	if s := n.scores.findAnswer(q); s != nil {
		return *s, true
	}
	return 0, false
}
