// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"strings"
)

// Shortage is a limit that a pod would exceed.
type Shortage struct {
	// Queue has the limit: the pod's own, or one above it. It is "" for a limit of a namespace.
	Queue string
	// Namespace has the limit, by this ResourceQuota.
	Namespace, Quota string
	Limit            Limit
	// Reserved says that the limit is what the guarantees of other queues leave, and no
	// capability.
	Reserved bool
	// Used is what the queue takes already, Asked what the pod would add, at the least.
	Used, Asked int64
	// Leaving is what pods that are ending still have of Used, if the pod may have what it asks for
	// once they have ended; else 0.
	Leaving int64
}

// Excess is by how much the limit would be exceeded.
func (s *Shortage) Excess() int64 { return s.Used + s.Asked - s.Limit.Amount }

// String says it in one sentence, as in a pod's event.
func (s *Shortage) String() string {
	text := s.Limit.Resource.formatAmount
	who, of := fmt.Sprintf("queue %q", s.Queue), ""
	if s.Namespace != "" {
		who, of = fmt.Sprintf("namespace %q", s.Namespace), fmt.Sprintf(" of ResourceQuota %q", s.Quota)
	}
	sentence := fmt.Sprintf("%s uses %s of %s %s%s: %s more is %s too much",
		who, text(s.Used), s.describeLimit(), s.Limit.Name, of, text(s.Asked), text(s.Excess()))
	if s.Leaving > 0 {
		sentence += fmt.Sprintf(" until pods that were deleted have ended, which still hold %s", text(s.Leaving))
	}
	return sentence
}

// setHolder notes who has the limit.
func (s *Shortage) setHolder(holder string) {
	if isQuota(holder) {
		s.Namespace, s.Quota, _ = strings.Cut(holder, keySeparator)
		return
	}
	s.Queue = holder
}

// describeLimit says how much the queue may take, and why.
func (s *Shortage) describeLimit() string {
	limit := s.Limit.Resource.formatAmount(s.Limit.Amount)
	if s.Reserved {
		return "the " + limit + " that the guarantees of other queues leave it of"
	}
	return limit
}

// AsksAsMuch reports whether other amounts come to the same of what the limit is about.
func (s *Shortage) AsksAsMuch(a Amounts) bool { return a.SumFor(&s.Limit) == s.Asked }

// Of returns what amounts come to of what the limit is about.
func (s *Shortage) Of(a Amounts) int64 { return a.SumFor(&s.Limit) }
