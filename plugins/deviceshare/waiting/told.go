// SPDX-License-Identifier: Apache-2.0

package waiting

import "strings"

// The allowance of a pod. It is a little less than what client-go's filter of events gives each
// object, so that none of what is told is dropped.
const (
	// Allowance is how many texts a pod may be told in short order.
	Allowance = 20
	// Reserve is how many of them are kept for other reasons: new numbers are not told with them.
	Reserve = 5
	// Refill is after how many seconds one more is allowed.
	Refill = 300
	// Spacing is for how many seconds a pod is not told new numbers after it was told anything.
	Spacing = 2
)

// Told is what one pod was last told. The zero value is a pod that was told nothing.
type Told struct {
	// Text is what it was told, "" for nothing.
	Text string
	// At is when, in seconds of any clock.
	At int64
	// Spent is how much of the allowance is used up, and Counted since when it is given back.
	Spent   int
	Counted int64
}

// Change is what makes a text different from another.
type Change int

// The changes, the smaller one first.
const (
	Nothing Change = iota
	Numbers        // the texts differ in numbers only
	Reason         // they differ in words
)

// Next returns what the pod is told when this is the reason at that time, and whether it is
// something new. An empty text is no reason: the pod keeps what it was told.
func (t Told) Next(text string, now int64) (next Told, news bool) {
	change := Difference(t.Text, text)
	if change == Nothing || text == "" {
		return t, false
	}
	t = t.refilled(now)
	if change == Numbers && (now-t.At < Spacing || t.Spent >= Allowance-Reserve) {
		return t, false
	}
	return Told{Text: text, At: now, Spent: min(t.Spent+1, Allowance), Counted: t.Counted}, true
}

// refilled gives back what time has earned. A clock that was set back earns nothing.
func (t Told) refilled(now int64) Told {
	if t.Spent == 0 || now < t.Counted {
		t.Counted = now
		return t
	}
	earned := (now - t.Counted) / Refill
	t.Spent -= int(min(earned, int64(t.Spent)))
	t.Counted += earned * Refill
	return t
}

// Difference compares two texts.
func Difference(old, text string) Change {
	if old == text {
		return Nothing
	}
	for {
		a, oldRest := word(old)
		b, textRest := word(text)
		if a != b {
			return Reason
		}
		if oldRest == "" && textRest == "" {
			return Numbers
		}
		old, text = oldRest, textRest
	}
}

// word returns what stands before the first number, with a mark if there is a number, and what
// stands behind that number.
func word(s string) (head, rest string) {
	i := strings.IndexAny(s, digits)
	if i < 0 {
		return s, ""
	}
	return s[:i], "#" + strings.TrimLeft(s[i:], digits)
}

const digits = "0123456789"
