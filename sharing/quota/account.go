// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"
	"strings"
)

// NamespaceQuota is the limits that a namespace was given, for all of its pods or for some.
type NamespaceQuota struct {
	Namespace, Name string
	Limits          []Limit
}

// Key tells the quotas of a cluster apart. No queue has a name like it.
func (q *NamespaceQuota) Key() string { return q.Namespace + keySeparator + q.Name }

// keySeparator is in the key of each quota and in no name of a queue.
const keySeparator = "/"

func isQuota(holder string) bool { return strings.Contains(holder, keySeparator) }

// Account is whose limits a pod counts for: its queue, the queues above that, and quotas of its
// namespace. It is never changed.
type Account struct {
	queue string
	// holders have the limits: the queue, those above it from below, then the quotas.
	holders []string
}

// Account returns the account of pods of a queue for which quotas hold, these by their keys.
func (h *Hierarchy) Account(queue string, quotas ...string) Account {
	chain := h.Chain(queue)
	return Account{queue: queue, holders: append(slices.Clip(chain), quotas...)}
}

// Joined returns the account of several pods of one queue: what any of them counts for.
func (a Account) Joined(b Account) Account {
	for _, holder := range b.holders {
		if !a.countsFor(holder) {
			a.holders = append(slices.Clip(a.holders), holder)
		}
	}
	return a
}

// Equal reports whether pods of two accounts count for the same limits.
func (a Account) Equal(b Account) bool {
	return a.queue == b.queue && slices.Equal(a.holders, b.holders)
}

func (a Account) countsFor(holder string) bool { return slices.Contains(a.holders, holder) }
