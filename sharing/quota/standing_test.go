// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"deviceshare/sharing/quota"
)

// queues reads standings: "name<parent: has/deserved" for each amount, with ! and what is
// guaranteed behind it; a dash for no number.
func queues(t *testing.T, lines ...string) *quota.Standings {
	t.Helper()
	s := &quota.Standings{Of: map[string]*quota.Standing{}, Chains: map[string][]string{}}
	parents := map[string]string{}
	for _, line := range lines {
		path, amounts, _ := strings.Cut(line, ":")
		name, parent, _ := strings.Cut(path, "<")
		parents[name] = cmp.Or(parent, quota.Root)
		q := &quota.Standing{}
		for _, text := range strings.Fields(amounts) {
			var has, deserved, guaranteed int64
			text, guarantee, _ := strings.Cut(text, "!")
			first, second, _ := strings.Cut(text, "/")
			fmt.Sscan(first, &has)
			fmt.Sscan(guarantee, &guaranteed)
			if deserved = quota.Unset; second != "-" {
				fmt.Sscan(second, &deserved)
			}
			q.Has, q.Deserved, q.Guaranteed = append(q.Has, has), append(q.Deserved, deserved), append(q.Guaranteed, guaranteed)
		}
		s.Of[name] = q
	}
	s.Of[quota.Root] = &quota.Standing{Has: make([]int64, 2), Deserved: []int64{quota.Unset, quota.Unset}, Guaranteed: make([]int64, 2)}
	for name := range s.Of {
		for at := name; at != ""; at = parents[at] {
			s.Chains[name] = append(s.Chains[name], at)
		}
	}
	return s
}

// Queue "mine" wants some of two amounts.
func TestWhatQueuesGiveUp(t *testing.T) {
	for name, c := range map[string]struct {
		queues []string
		wants  []int64
		from   string
		most   string // by level, a star for all of an amount; "" for nothing
		beyond string
	}{
		"what is more than a queue deserves, or a bit less": {
			[]string{"mine: 0/4 0/-", "other: 6/4 0/-"}, []int64{1, 0}, "other", "other 5 *", ""},
		"no more than leaves it the larger part": {
			[]string{"mine: 2/4 0/-", "other: 6/4 0/-"}, []int64{1, 0}, "other", "other 3 *", ""},
		"what it has too much, however little mine lacks": {
			[]string{"mine: 3/4 0/-", "other: 8/4 0/-"}, []int64{1, 0}, "other", "other 4 *", ""},
		"not all of one large pod that is all it has": {
			[]string{"mine: 0/4 0/-", "other: 8/4 0/-"}, []int64{4, 0}, "other", "other 7 *", ""},
		"nothing if it has no more than it deserves": {
			[]string{"mine: 0/4 0/-", "other: 4/4 0/-"}, []int64{1, 0}, "other", "", ""},
		"nothing to who would have more than it deserves": {
			[]string{"mine: 4/4 0/-", "other: 8/4 0/-"}, []int64{1, 0}, "other", "", "mine 0"},
		"up to what is guaranteed, though less is deserved": {
			[]string{"mine: 0/1!2 0/-", "other: 8/4 0/-"}, []int64{2, 0}, "other", "other 7 *", ""},
		"never what is guaranteed to it": {
			[]string{"mine: 0/4 0/-", "other: 6/4!4 9/-!7"}, []int64{1, 0}, "other", "other 2 2", ""},
		"whatever it has, if it was told nothing": {
			[]string{"mine: 0/4 0/-", "other: 6/- 3/-"}, []int64{1, 0}, "other", "other * *", ""},
		"also what of other amounts it has too little": {
			[]string{"mine: 2/4 0/8", "other: 6/4 1/8"}, []int64{1, 1}, "other", "other 5 *", ""},
		"nothing of which only what is not wanted is too much": {
			[]string{"mine: 0/4 0/8", "other: 2/4 9/8"}, []int64{1, 0}, "other", "", ""},
		"what the queue above has too much, too": {
			[]string{"top: 6/3 0/-", "mine: 0/4 0/-", "other<top: 6/2 0/-"}, []int64{1, 0}, "other", "other 5 *, top 5 *", ""},
		"nothing if the queue above has no more than it deserves": {
			[]string{"top: 6/6 0/-", "mine: 0/4 0/-", "other<top: 6/2 0/-"}, []int64{1, 0}, "other", "", ""},
		"to a sister, whatever the queue above deserves": {
			[]string{"top: 6/1 0/-", "mine<top: 0/4 0/-", "other<top: 6/2 0/-"}, []int64{1, 0}, "other", "other 5 *", "top 0"},
		"nothing to a stranger whose queue above has what it deserves": {
			[]string{"top: 6/6 0/-", "mine<top: 0/4 0/-", "other: 6/2 0/-"}, []int64{1, 0}, "other", "", "top 0"},
		"nothing to itself": {
			[]string{"mine: 0/4 0/-"}, []int64{1, 0}, "mine", "", ""},
		"nothing to a queue above itself": {
			[]string{"mine: 0/4 0/-", "other<mine: 6/2 0/-"}, []int64{1, 0}, "other", "", ""},
	} {
		terms := queues(t, c.queues...).TermsFor("mine", c.wants)
		levels, gives := terms.GivenBy(c.from)
		var got []string
		for _, l := range levels {
			text := l.Queue
			for _, n := range l.Most {
				if n > 1<<40 {
					text += " *"
				} else {
					text += fmt.Sprint(" ", n)
				}
			}
			got = append(got, text)
		}
		if strings.Join(got, ", ") != c.most || gives != (c.most != "") {
			t.Errorf("%s: %q, gives %v; want %q", name, got, gives, c.most)
		}
		beyond := ""
		if queue, of, is := terms.Beyond(); is {
			beyond = fmt.Sprint(queue, " ", of)
		}
		if beyond != c.beyond {
			t.Errorf("%s: beyond what it deserves is %q; want %q", name, beyond, c.beyond)
		}
	}
}

// flat is queues without others above them, in words of its own: what each has in pods of some
// size, and deserves.
type flat struct {
	pods     [][]int64
	deserved []int64
}

func (f *flat) has(q int) (sum int64) {
	for _, n := range f.pods[q] {
		sum += n
	}
	return sum
}

// isWorse reports whether a deficit of a of b is larger than one of c of d.
func isWorse(a, b, c, d int64) bool { return a*d < c*b }

// Random queues take from each other, whatever the terms allow, and the pods that left try to come
// back: it ends, no queue takes more than it deserves, and the larger deficit shrinks.
func TestReclaimingComesToAnEnd(t *testing.T) {
	reclaims, below := 0, 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 9))
		f := flat{}
		for range 2 + r.IntN(3) {
			var pods []int64
			for range r.IntN(5) {
				pods = append(pods, 1+r.Int64N(4))
			}
			f.pods, f.deserved = append(f.pods, pods), append(f.deserved, 1+r.Int64N(8))
		}
		waiting := make([][]int64, len(f.pods))
		for q := range waiting {
			for range r.IntN(4) {
				waiting[q] = append(waiting[q], 1+r.Int64N(4))
			}
		}
		for round := 0; ; round++ {
			if round > 200 {
				t.Fatalf("seed %d: %d reclaims, and no end: %+v", seed, round, f)
			}
			done, down := f.reclaim(t, r, waiting)
			if !done {
				break
			}
			reclaims++
			if down {
				below++
			}
		}
	}
	if reclaims < 1000 || below < 50 {
		t.Errorf("%d reclaims, %d of them to below what is deserved: the test shows little", reclaims, below)
	}
}

// reclaim has one queue take from another one what it wants, if the terms allow it.
func (f *flat) reclaim(t *testing.T, r *rand.Rand, waiting [][]int64) (done, below bool) {
	t.Helper()
	for _, mine := range r.Perm(len(f.pods)) {
		for i, wants := range waiting[mine] {
			var lines []string
			for q := range f.pods {
				lines = append(lines, fmt.Sprintf("q%d: %d/%d 0/-", q, f.has(q), f.deserved[q]))
			}
			terms := queues(t, lines...).TermsFor(fmt.Sprint("q", mine), []int64{wants, 0})
			for _, from := range r.Perm(len(f.pods)) {
				levels, gives := terms.GivenBy(fmt.Sprint("q", from))
				if !gives {
					continue
				}
				var leaving []int64
				for _, k := range r.Perm(len(f.pods[from])) {
					if n := f.pods[from][k]; sum(leaving) < wants && sum(leaving)+n <= levels[0].Most[0] && levels[0].GivesUp([]int64{n, 0}) {
						leaving = append(leaving, n)
					}
				}
				if sum(leaving) < wants {
					continue
				}
				had, its := f.has(mine), f.has(from)
				for _, n := range leaving {
					f.pods[from] = slices.Delete(f.pods[from], slices.Index(f.pods[from], n), slices.Index(f.pods[from], n)+1)
					waiting[from] = append(waiting[from], n)
				}
				f.pods[mine] = append(f.pods[mine], wants)
				waiting[mine] = slices.Delete(waiting[mine], i, i+1)
				if f.has(mine) > f.deserved[mine] || its <= f.deserved[from] {
					t.Fatalf("q%d takes %d of q%d, which has %d of %d: %+v", mine, wants, from, its, f.deserved[from], f)
				}
				if below = f.has(from) < f.deserved[from]; below && !isWorse(had, f.deserved[mine], f.has(from), f.deserved[from]) {
					t.Fatalf("q%d had %d of %d, and leaves q%d %d of %d", mine, had, f.deserved[mine], from, f.has(from), f.deserved[from])
				}
				return true, below
			}
		}
	}
	return false, false
}

func sum(amounts []int64) (n int64) {
	for _, m := range amounts {
		n += m
	}
	return n
}
