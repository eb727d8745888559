// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// One look a second: k where the keeper did its part, . where it did not. Wanted is where the
// Server is registered after each look: K with the keeper, d directly with the kubelet. Patience
// is 3 looks, Steady 4.
func TestWhereToRegister(t *testing.T) {
	times := MoveTimes{Patience: 3 * time.Second, Steady: 4 * time.Second}
	for name, c := range map[string]struct{ looks, want string }{
		"a keeper that is there":                {"kkkkkkkk", "KKKKKKKK"},
		"no keeper":                             {"........", "KKdddddd"},
		"one a moment later":                    {".kkkkkkk", "KKKKKKKK"},
		"one that dies and is back at once":     {"kkkkkk..kkkkkk", "KKKKKKKKKKKKKK"},
		"one that dies and is back later":       {"kkkkkk....kkkkkk", "KKKKKKKKddddddKK"},
		"one that restarts all the time":        {"k.k.k.k.k.k.k.k.", "KKKddddddddddddd"},
		"one that comes and is gone":            {"...kkk.kkkkkk", "KKdddddddddKK"},
		"one that answers and takes no list":    {"...kkkkk...kkkkkkkkkkkk", "KKdddddKKKdddddddddKKKK"},
		"one that was steady is given patience": {"kkkkkkkkk..k..k...", "KKKKKKKKKKKKdddddd"},
	} {
		got := walk(times, c.looks)
		if got != c.want {
			t.Errorf("%s: looks %s lead to %s, want %s", name, c.looks, got, c.want)
		}
		if want := dumb(times, c.looks); got != want {
			t.Errorf("%s: looks %s lead to %s, the account says %s", name, c.looks, got, want)
		}
	}
}

func walk(times MoveTimes, looks string) string {
	s := firstStay(time.Unix(0, 0))
	var got strings.Builder
	for i, look := range looks {
		s = s.afterLook(look == 'k', time.Unix(int64(i+1), 0), times)
		got.WriteByte(map[registrar]byte{theKeeper: 'K', theKubelet: 'd'}[s.with])
	}
	return got.String()
}

// dumb says the same from all the looks since the last move, of which it keeps nothing.
func dumb(times MoveTimes, looks string) string {
	var got strings.Builder
	// began is the look after which the stay began, counted from 1.
	with, began, failed := byte('K'), 0, 0
	for i := range looks {
		stay := looks[began : i+1]
		need := times.Steady
		if with == 'd' && failed > 1 {
			need *= time.Duration(min(100, 1<<min(failed-1, 10)))
		}
		last := 0 // the latest look of the stay at which the keeper was steady, counted from 1
		for j := range stay {
			run := j + 1 - (strings.LastIndexByte(stay[:j+1], '.') + 1) // looks without a break
			if run > 0 && time.Duration(run-1)*time.Second >= need {
				last = j + 1
			}
		}
		switch {
		case with == 'd' && last == len(stay):
			with, began = 'K', i+1
		case with == 'K' && last > 0:
			failed = 0
		}
		if with == 'K' && began <= i && looks[i] == '.' && time.Duration(len(stay)-last)*time.Second >= times.Patience {
			with, began, failed = 'd', i+1, failed+1
		}
		got.WriteByte(with)
	}
	return got.String()
}

func TestWhereToRegisterInRandomOrders(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 3))
		times := MoveTimes{Patience: time.Duration(1+random.IntN(6)) * time.Second, Steady: time.Duration(random.IntN(6)) * time.Second}
		var looks strings.Builder
		for looks.Len() < 200 {
			looks.WriteString(strings.Repeat([]string{"k", "."}[random.IntN(2)], 1+random.IntN(12)))
		}
		if got, want := walk(times, looks.String()), dumb(times, looks.String()); got != want {
			t.Fatalf("seed %d, %+v: looks\n%s lead to\n%s, the account says\n%s", seed, times, looks.String(), got, want)
		}
	}
}
