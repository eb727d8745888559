// SPDX-License-Identifier: Apache-2.0

package news

import "strings"

// The allowance of a pod. It is a little less than what client-go's filter of events gives each
// object, so that none of what is told is dropped.
const (
	// Allowance is how many texts a pod may be told in short order.
	Allowance = 20
	// Reserve is how many of them are kept for other causes: nothing else is told with them.
	Reserve = 5
	// refill is after how many seconds one more is allowed.
	refill = 300
	// spacing is for how many seconds a pod is told nothing else about the same cause after it was
	// told anything, and how long other words must have been true before they are told.
	spacing = 2
)

// lastTold is what one pod was last told. The zero value is a pod that was told nothing.
type lastTold struct {
	// Text is what it was told, "" for nothing, and Cause for which it waited then.
	Text  string
	Cause Cause
	// Next has other words about the same cause, "" for none, and Since when they are true.
	Next  string
	Since int64
	// At is when, in seconds of any clock.
	At int64
	// Spent is how much of the allowance is used up, and Counted since when it is given back.
	Spent   int
	Counted int64
}

// change is what makes a text different from another.
type change int

// The changes, the smaller one first.
const (
	noChange       change = iota
	numbersChanged        // the texts differ in numbers only
	wordsChanged          // they differ in words
)

// isNews reports whether a cause is another one than the pod was told of: that is told at once.
func (t lastTold) isNews(cause Cause) bool { return t.Text == "" || t.Cause != cause }

// After returns what the pod has been told when it waits for a cause with a text at that time, and
// whether that is something new. An empty text is no reason: the pod keeps what it was told.
//
// Another cause is told at once. So is the first text. Other numbers, and other words about the
// same cause, are told as often as the allowance permits; words only once they last. One device of
// many that comes and goes is therefore not told to each pod that waits.
func (t lastTold) After(cause Cause, text string, now int64) (next lastTold, news bool) {
	differs := compareTexts(t.Text, text)
	if differs == noChange || text == "" {
		t.Next, t.Since = "", 0
		return t, false
	}
	t = t.withRefill(now)
	if !t.isNews(cause) {
		if differs == numbersChanged {
			t.Next, t.Since = "", 0
		}
		if differs == wordsChanged && !t.hasPending(text, now) {
			t.Next, t.Since = text, now
			return t, false
		}
		settling := differs == wordsChanged && now-t.Since < spacing
		if settling || now-t.At < spacing || t.Spent >= Allowance-Reserve {
			return t, false
		}
	}
	return lastTold{Text: text, Cause: cause, At: now, Spent: min(t.Spent+1, Allowance), Counted: t.Counted}, true
}

// hasPending reports whether the words of a text have been true before this time.
func (t lastTold) hasPending(text string, now int64) bool {
	return t.Next != "" && now >= t.Since && compareTexts(t.Next, text) != wordsChanged
}

// withRefill gives back what time has earned. A clock that was set back earns nothing.
func (t lastTold) withRefill(now int64) lastTold {
	if t.Spent == 0 || now < t.Counted {
		t.Counted = now
		return t
	}
	earned := (now - t.Counted) / refill
	t.Spent -= int(min(earned, int64(t.Spent)))
	t.Counted += earned * refill
	return t
}

func compareTexts(old, text string) change {
	if old == text {
		return noChange
	}
	for {
		a, oldRest := splitAtNumber(old)
		b, textRest := splitAtNumber(text)
		if a != b {
			return wordsChanged
		}
		if oldRest == "" && textRest == "" {
			return numbersChanged
		}
		old, text = oldRest, textRest
	}
}

// splitAtNumber returns what stands before the first number, with a mark if there is a number, and
// what stands behind that number.
func splitAtNumber(s string) (head, rest string) {
	i := strings.IndexAny(s, digits)
	if i < 0 {
		return s, ""
	}
	return s[:i], "#" + strings.TrimLeft(s[i:], digits)
}

const digits = "0123456789"
