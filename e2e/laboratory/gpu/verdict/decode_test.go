// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"strings"
	"testing"
)

// turns are those of tokens that took so many milliseconds.
func turns(wall ...float64) []Turn {
	out := make([]Turn, len(wall))
	for i, ms := range wall {
		out[i] = Turn{Rate: 1000 / ms, First: 20, Device: ms, Wall: ms, Tail: 2 * ms}
	}
	return out
}

func ten(ms float64) []float64 {
	out := make([]float64, 10)
	for i := range out {
		out[i] = ms
	}
	return out
}

func TestATokenIsJudgedOnlyIfTenRoundsAgree(t *testing.T) {
	one := func(at int, ms float64, all ...float64) []float64 {
		all[at] = ms
		return all
	}
	for says, c := range map[string]struct {
		bare, ours []float64
		want       Result
		why        string
	}{
		"as long":                          {ten(4), ten(4), Held, ""},
		"shorter":                          {ten(4), ten(3.9), Held, ""},
		"half a percent longer":            {ten(4), ten(4.02), Held, ""},
		"two percent longer":               {ten(4), ten(4.08), Missed, "2.00 % longer"},
		"nine rounds":                      {ten(4)[:9], ten(4)[:9], Undecided, "9 of 10 rounds"},
		"none":                             {nil, nil, Undecided, "0 of 10 rounds"},
		"one round 0.9 % above the others": {ten(4), one(3, 4.036, ten(4)...), Held, ""},
		"one round 1.1 % above the others": {ten(4), one(3, 4.044, ten(4)...), Undecided, "round 4 is +1.10 %"},
		"one round 1.1 % below the others": {ten(4), one(9, 3.956, ten(4)...), Undecided, "round 10 is -1.10 %"},
		"longer, and one round disagrees":  {ten(4), one(0, 5, ten(4.2)...), Undecided, "round 1"},
		// The card grows slower for both: only the ratio within a round counts.
		"both grow slower": {[]float64{4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8, 8.5}, []float64{4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8, 8.5}, Held, ""},
	} {
		t.Run(says, func(t *testing.T) {
			row := Decode(OnCard(), 10, turns(c.bare...), turns(c.ours...)).Row(14, says)
			if row.Result != c.want || !strings.HasPrefix(row.Why, c.why) {
				t.Errorf("%s (%s), want %s (%s)", row.Result, row.Why, c.want, c.why)
			}
		})
	}
}

func TestSharesOfTokensHaveTheirMeanError(t *testing.T) {
	runs := []Shared{{Limit: 10, Ratios: []float64{0.12, 0.12}}, {Limit: 90, Ratios: []float64{0.89, 0.89}}}
	f := ShareOfTokens(OnCard(), 2, runs)
	misses(t, f)
	if !strings.Contains(f.Measured, "mean absolute error 1.5 points") {
		t.Errorf("measured %q", f.Measured)
	}
	misses(t, ShareOfTokens(OnCard(), 3, runs), "10 %: 2 of 3 repeats", "90 %: 2 of 3 repeats")
	misses(t, ShareOfTokens(OnCard(), 1, nil), "nothing")
}

func TestDecodersAtOnce(t *testing.T) {
	m := PairedTurns{Limits: [2]int{30, 70}, Alone: turns(1, 1), First: turns(3.3, 3.3), Second: turns(1.4, 1.4)}
	f := PairOfTurns(OnCard(), 2, m)
	misses(t, f)
	if !strings.Contains(f.Measured, "p99 of a token 2.000 ms alone, 6.600 and 2.800 ms at once") {
		t.Errorf("measured %q", f.Measured)
	}
	m.Second = turns(3.3, 3.3)
	misses(t, PairOfTurns(OnCard(), 2, m), "ratio 1.00", "together 0.61")
	m.Limits = [2]int{}
	if row := PairOfTurns(OnCard(), 2, m).Row(15, "no limits"); row.Result != Noted || !strings.Contains(row.Measured, "0.303 and 0.303 of one alone") {
		t.Errorf("without limits: %+v", row)
	}
}

func TestDecodersOnTheFakeDriverAreNotJudged(t *testing.T) {
	slow, bare := turns(40), turns(4)
	for says, f := range map[string]Finding{
		"a token": Decode(OnFake(), 10, bare, slow),
		"shares":  ShareOfTokens(OnFake(), 3, []Shared{{Limit: 10, Ratios: []float64{2}}}),
		"a pair":  PairOfTurns(OnFake(), 3, PairedTurns{Limits: [2]int{30, 70}, Alone: bare, First: slow, Second: bare}),
	} {
		if row := f.Row(14, says); row.Result != Noted || row.Measured == "" {
			t.Errorf("%s: %+v", says, row)
		}
	}
}
