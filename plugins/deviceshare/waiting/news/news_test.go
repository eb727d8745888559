// SPDX-License-Identifier: Apache-2.0

package news

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestTextsDifferInNumbersOrInWords(t *testing.T) {
	cases := map[string]struct {
		old, text string
		want      change
	}{
		"the same":                          {"3 of 8", "3 of 8", noChange},
		"another number":                    {"3 of 8", "4 of 8", numbersChanged},
		"a longer number":                   {"3 of 8 devices", "12 of 128 devices", numbersChanged},
		"another word":                      {"3 short of free memory (NotEnoughMemory)", "3 out of service (Unhealthy)", wordsChanged},
		"one more reason":                   {"3 out of service (Unhealthy)", "3 out of service (Unhealthy), 1 in a mode that the pod does not accept (WrongMode)", wordsChanged},
		"a number where none was":           {"node", "node 3", wordsChanged},
		"a number less":                     {"3 and 4", "3 and", wordsChanged},
		"nothing was told":                  {"", "3", wordsChanged},
		"a number at the end":               {"a 1", "a 2", numbersChanged},
		"a number at the begin":             {"1 a", "2 a", numbersChanged},
		"a number sign instead of a number": {"a # b", "a 3 b", wordsChanged},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := compareTexts(c.old, c.text); got != c.want {
				t.Errorf("compareTexts(%q, %q) = %v, want %v", c.old, c.text, got, c.want)
			}
			if c.old != "" {
				if got := compareTexts(c.text, c.old); got != c.want {
					t.Errorf("the other way round: %v, want %v", got, c.want)
				}
			}
		})
	}
}

// The oracle compares what stands between the numbers.
func FuzzDifference(f *testing.F) {
	f.Add("0/8 devices", "1/8 devices")
	f.Add("a # b", "a 1 b")
	f.Add("0", "\x00")
	numbers := regexp.MustCompile(`[0-9]+`)
	f.Fuzz(func(t *testing.T, old, text string) {
		want := wordsChanged
		switch {
		case old == text:
			want = noChange
		case slices.Equal(numbers.Split(old, -1), numbers.Split(text, -1)):
			want = numbersChanged
		}
		if got := compareTexts(old, text); got != want {
			t.Errorf("compareTexts(%q, %q) = %v, want %v", old, text, got, want)
		}
	})
}

func TestAPodIsToldByTheStory(t *testing.T) {
	type step struct {
		at   int64
		text string
		want string
	}
	// A text that begins with a cause waits for that, any other one for nodes.
	causeOf := func(text string) Cause {
		for c := range Causes {
			if strings.HasPrefix(text, c.String()) {
				return c
			}
		}
		return Nodes
	}
	for name, steps := range map[string][]step{
		"the first reason is told":                               {{0, "full", "full"}},
		"another cause is told at once":                          {{10, "full", "full"}, {10, "queue", "queue"}, {10, "full", "full"}},
		"other words about the same cause have to last":          {{10, "full", "full"}, {11, "broken", "full"}, {12, "broken", "full"}, {13, "broken", "broken"}},
		"their numbers may differ meanwhile":                     {{10, "full", "full"}, {11, "1 broken", "full"}, {12, "2 broken", "full"}, {13, "3 broken", "3 broken"}},
		"words that come and go are not told":                    {{10, "full", "full"}, {13, "broken", "full"}, {16, "full", "full"}, {19, "broken", "full"}, {20, "full", "full"}},
		"words that take turns are not told":                     {{10, "full", "full"}, {13, "broken", "full"}, {16, "gone", "full"}, {19, "broken", "full"}},
		"words that came back to the old ones begin again":       {{10, "1 full", "1 full"}, {13, "broken", "1 full"}, {14, "2 full", "2 full"}, {16, "broken", "2 full"}},
		"of words that last, a clock that is set back knows":     {{100, "full", "full"}, {101, "broken", "full"}, {5, "broken", "full"}, {8, "broken", "full"}, {103, "broken", "broken"}},
		"new numbers wait for their spacing":                     {{10, "1 full", "1 full"}, {11, "2 full", "1 full"}, {12, "3 full", "3 full"}},
		"a pod without a reason keeps what it was told":          {{10, "full", "full"}, {20, "", "full"}},
		"a clock that is set back tells no numbers, but words":   {{100, "1 full", "1 full"}, {5, "2 full", "1 full"}, {6, "queue", "queue"}},
		"a clock that leaps ahead tells numbers":                 {{1, "1 full", "1 full"}, {1 << 40, "2 full", "2 full"}},
		"the number of a node is a number: it waits its spacing": {{10, "node n1", "node n1"}, {10, "node n2", "node n1"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMemory(Limits{Pods: 1, Repeats: 1})
			for i, s := range steps {
				m.Begin(s.at)
				if got := m.Tell("p", causeOf(s.text), s.text); got != s.want {
					t.Fatalf("step %d: told %q, want %q", i, got, s.want)
				}
				m.End()
			}
		})
	}
}

func TestNumbersThatNeverRestAreToldAsOftenAsEventsAreKept(t *testing.T) {
	var told lastTold
	news := 0
	for now := range int64(3600) {
		next, is := told.After(Nodes, fmt.Sprintf("%d used", now), now)
		if is {
			news++
		}
		told = next
	}
	if want := Allowance - Reserve + 3600/refill; news < want-1 || news > want {
		t.Errorf("%d texts in an hour, want about %d", news, want)
	}
	if _, is := told.After(Queue, "the queue is closed", 3600); !is {
		t.Error("another reason was not told")
	}
}

// Client-go drops the events of an object by a token bucket: 25 at once, one more every 300 s.
func TestWhatIsToldWithoutNewWordsIsNeverDroppedByTheFilterOfEvents(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var told lastTold
		tokens, last := 25.0, int64(0)
		for now := int64(0); now < 20000; now += r.Int64N(30) {
			next, news := told.After(Nodes, fmt.Sprintf("%d %s", r.IntN(1000), []string{"used", "full"}[r.IntN(2)]), now)
			if news {
				tokens = min(25, tokens+float64(now-last)/300)
				last = now
				if tokens < 1 {
					t.Fatalf("seed %d, second %d: the event would be dropped", seed, now)
				}
				tokens--
			}
			told = next
		}
	}
}

func TestARoundTellsNewNumbersToAFewAndNewWordsToAll(t *testing.T) {
	m := NewMemory(Limits{Pods: 100, Repeats: 10})
	tell := func(now int64, cause Cause, text string) (news int) {
		m.Begin(now)
		for i := range 100 {
			if m.Tell(Pod(fmt.Sprint(i)), cause, text) == text {
				news++
			}
		}
		m.End()
		return news
	}
	if got := tell(0, Nodes, "1 full"); got != 100 {
		t.Errorf("the first text reached %d of 100", got)
	}
	if got := tell(10, Nodes, "2 full"); got != 10 {
		t.Errorf("new numbers reached %d pods, want 10", got)
	}
	if got := tell(10, Nodes, "2 full"); got != 20 {
		t.Errorf("the next round has reached %d pods, want 20", got)
	}
	if got := tell(20, Nodes, "2 broken"); got != 0 {
		t.Errorf("other words about the same cause reached %d pods at once", got)
	}
	if got := tell(30, Nodes, "2 broken"); got != 10 {
		t.Errorf("when they last, they reached %d pods, want 10", got)
	}
	if got := tell(30, Queue, "the queue is closed"); got != 100 {
		t.Errorf("new words reached %d of 100", got)
	}
}

func TestAMemoryForgetsWhoWaitsNoMoreAndIsBounded(t *testing.T) {
	m := NewMemory(Limits{Pods: 3, Repeats: 1})
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		m.Begin(int64(seed))
		mentioned := map[Pod]bool{}
		for range r.IntN(6) {
			pod := Pod(fmt.Sprint(r.IntN(6)))
			mentioned[pod] = true
			if got := m.Tell(pod, Nodes, "words"); got != "words" {
				t.Fatalf("told %q", got)
			}
		}
		m.End()
		if m.Len() > 3 || m.Len() > len(mentioned) {
			t.Fatalf("round %d: %d pods are remembered, %d waited", seed, m.Len(), len(mentioned))
		}
	}
}

func TestAPodThatWaitsAgainBeginsAnew(t *testing.T) {
	m := NewMemory(Limits{Pods: 9, Repeats: 9})
	m.Begin(0)
	m.Tell("p", Nodes, "1 full")
	m.End()
	m.Begin(1)
	m.End()
	m.Begin(1)
	if got := m.Tell("p", Nodes, "2 full"); got != "2 full" {
		t.Errorf("told %q", got)
	}
}

func BenchmarkRoundOf5000PodsWithNothingNew(b *testing.B) {
	m := NewMemory(Limits{Pods: 10000, Repeats: 100})
	pods := make([]Pod, 5000)
	for i := range pods {
		pods[i] = Pod(fmt.Sprintf("00000000-0000-0000-0000-%012d", i))
	}
	for i := range b.N {
		m.Begin(int64(i))
		for _, p := range pods {
			m.Tell(p, Nodes, "0/8 devices fit")
		}
		m.End()
	}
}
