// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"strings"

	"deviceshare/sharing"
)

// Entry is one entry of a queue's list of resources, as it is written.
type Entry struct {
	// Field is the list: "capability", "deserved" or "guarantee".
	Field string
	Name  string
	// Text is the quantity as it is written, Value what it comes to, rounded up; Fraction says that
	// it was rounded.
	Text     string
	Value    int64
	Fraction bool
}

// beyondReason is how many times what the cluster has nobody plans for.
const beyondReason = 100

// Doubts returns what a queue's author cannot have meant, one sentence for each entry. The limits
// are in force as they are written. Total is what the devices of the cluster have; empty if none is
// known.
func Doubts(entries []Entry, names Names, total Amounts) []string {
	var doubts []string
	for i := range entries {
		if why := entries[i].describeDoubt(names, total); why != "" {
			doubts = append(doubts, fmt.Sprintf("%s %s: %s %s", entries[i].Field, entries[i].Name, entries[i].Text, why))
		}
	}
	return doubts
}

// describeDoubt is why an entry cannot be meant, "" if it can.
func (e *Entry) describeDoubt(names Names, total Amounts) string {
	l, ok := ReadLimit(e.Name, e.Value, names)
	if !ok {
		return ""
	}
	has := total.SumFor(&l)
	switch {
	case e.Value < 0:
		return "is negative and counts as 0: it lets no pod in"
	case l.Resource == Memory && strings.HasSuffix(e.Text, "i"):
		return fmt.Sprintf("counts as %s, since the amount is a number of %s: write it without a suffix, %d for %s",
			l.Resource.formatAmount(l.Amount), sharing.MiBs(max(names.Factor, 1)), plainMemory(e.Value, names), sharing.Bytes(e.Value))
	case strings.HasSuffix(e.Text, "i"):
		return fmt.Sprintf("has a suffix of amounts of memory and counts as %s", l.Resource.formatAmount(l.Amount))
	case e.Fraction:
		return fmt.Sprintf("is a fraction and counts as %s", l.Resource.formatAmount(l.Amount))
	case len(total) > 0 && len(l.Model) > 0 && has == 0 && l.Resource != Number:
		return "is about a model that no device of the cluster has: it limits nothing"
	case has > 0 && l.Amount/beyondReason > has:
		return fmt.Sprintf("counts as %s, more than %d times what the cluster has (%s): it limits nothing",
			l.Resource.formatAmount(l.Amount), beyondReason, l.Resource.formatAmount(has))
	}
	return ""
}

// plainMemory is how many units an amount in bytes is, at least one.
func plainMemory(bytes int64, names Names) int64 {
	unit := max(names.Factor, 1)
	return max((sharing.Bytes(bytes).WholeMiB()+unit-1)/unit, 1)
}
