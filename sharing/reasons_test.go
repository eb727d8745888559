// SPDX-License-Identifier: Apache-2.0

package sharing_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"deviceshare/sharing"
)

func TestEveryReasonHasACodeAClauseAndAnAdvice(t *testing.T) {
	const page = "../docs/events.md"
	events, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]sharing.Reason{}
	for reason := sharing.Reason(1); reason < sharing.Reasons; reason++ {
		code, text, advice := reason.String(), reason.Text(), reason.Advice()
		clause, hasCode := strings.CutSuffix(text, " ("+code+")")
		if !regexp.MustCompile(`^[A-Z][A-Za-z]+$`).MatchString(code) || strings.HasPrefix(code, "Reason") {
			t.Errorf("reason %d has the code %q", reason, code)
		}
		if !hasCode || len(strings.Fields(clause)) < 2 || strings.ContainsAny(clause, ",;:()0123456789") {
			t.Errorf("%s reads %q: want a plain clause without commas and amounts, then the code", code, text)
		}
		if len(strings.Fields(advice)) < 3 || len(advice) > 90 || strings.HasSuffix(advice, ".") {
			t.Errorf("%s advises %q: want a short order", code, advice)
		}
		for _, words := range []string{clause, advice} {
			if words != "" && !unicode.IsLower(rune(words[0])) {
				t.Errorf("%s: %q does not begin in lower case", code, words)
			}
		}
		for _, key := range []string{code, clause} {
			if other, known := seen[key]; known {
				t.Errorf("%q is said of %v and of %v", key, other, reason)
			}
			seen[key] = reason
		}
		if !strings.Contains(string(events), "`"+code+"`") || !strings.Contains(string(events), clause) {
			t.Errorf("%s does not explain %q", page, text)
		}
	}
	if got := sharing.Reasons; got.String() == "" || got.Text() == "" || got.Advice() == "" {
		t.Errorf("an unknown reason has no text: %q, %q, %q", got.String(), got.Text(), got.Advice())
	}
}

func TestRefusalsReadAsTheEventOfThePod(t *testing.T) {
	r := sharing.Refusals{Container: "main", Devices: 8, Found: 0, Wanted: 1}
	r.Count[sharing.Unhealthy], r.Count[sharing.NotEnoughMemory] = 3, 5
	want := `0/8 devices fit container "main", 1 wanted: 5 short of free memory (NotEnoughMemory), 3 out of service (Unhealthy)`
	if got := r.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r.Count[sharing.NotSelected] = 5
	want = ": 5 excluded by the pod's lists of models and UUIDs (NotSelected), 5 short of free memory (NotEnoughMemory), 3 out of service (Unhealthy)"
	if got := r.String(); !strings.HasSuffix(got, want) {
		t.Errorf("equal counts are not in the order of the reasons: %s", got)
	}
}

// Kubernetes cuts events at 1024 bytes, and several nodes have to have room in one.
func TestATextOfRefusalsIsShortWhateverTheReasons(t *testing.T) {
	r := sharing.Refusals{Container: strings.Repeat("x", 63), Devices: 65535, Wanted: 1024}
	for reason := sharing.Reason(1); reason < sharing.Reasons; reason++ {
		r.Count[reason] = 65535
	}
	got := r.String()
	if len(got) > 450 || !strings.HasSuffix(got, fmt.Sprintf(", %d for other reasons", 65535*(int(sharing.Reasons)-1-4))) {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

// The oracle adds up counts itself, and shares no code with the texts but the codes.
func TestTheMainReasonOfTextsIsTheOneOfMostDevices(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	for range 500 {
		text, counts := "0/3 nodes are unavailable: 1 Insufficient cpu", map[sharing.Reason]int{}
		for node := range 1 + random.IntN(3) {
			r := sharing.Refusals{Container: "c (Unhealthy)", Devices: 8, Wanted: 1}
			for range 1 + random.IntN(4) {
				reason := sharing.Reason(1 + random.IntN(int(sharing.Reasons)-1))
				n := uint16(1 + random.IntN(9))
				counts[reason] += int(n) - int(r.Count[reason])
				r.Count[reason] = n
			}
			text += fmt.Sprintf(", %d node(s) where %s", node+1, r.String())
		}
		want := sharing.Fits
		for reason := sharing.Reason(1); reason < sharing.Reasons; reason++ {
			if counts[reason] > counts[want] {
				want = reason
			}
		}
		if got := sharing.MainReason(text); got != want {
			t.Fatalf("%v, want %v: %s", got, want, text)
		}
	}
}

func FuzzMainReasonOfAnyText(f *testing.F) {
	f.Add("0/3 nodes are unavailable: 3 node(s) were unschedulable.")
	f.Add("5 short of free memory (NotEnoughMemory)")
	f.Add(" short of free memory (NotEnoughMemory)99999999999999999999 out of service (Unhealthy)")
	f.Fuzz(func(t *testing.T, text string) {
		if got := sharing.MainReason(text); got >= sharing.Reasons || got != sharing.Fits && !strings.Contains(text, got.Text()) {
			t.Errorf("%v of %q", got, text)
		}
	})
}
