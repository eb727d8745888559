// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"deviceshare/e2e/laboratory/gpu/tenant"
)

// A card is lent for minutes. Starting decoders and recording their graphs takes some 25 s.
func TestDecodersKeepTheirTime(t *testing.T) {
	const lease, start = 480 * time.Second, 25 * time.Second
	limits := map[int]time.Duration{}
	for _, e := range experiments() {
		limits[e.number] = e.limit
	}
	s := onCard()
	if sum := limits[14] + limits[15]; sum > lease {
		t.Errorf("both experiments may take %v, more than %v", sum, lease)
	}
	for _, other := range []string{"", "libvgpu.so"} {
		turns := len(decodeWays(other != "")) * len(decodeTenants(other)) * s.decodes
		if took := start + time.Duration(turns)*s.turn; took > limits[14] {
			t.Errorf("with the other library %q the cost of a token takes %v, more than its %v", other, took, limits[14])
		}
	}
	turns := s.decodePairs * (6 + 4*2) // five limits and a bare one; four pairs, each with one alone
	if took := 5*start + time.Duration(turns)*s.turn; took > limits[15] {
		t.Errorf("decoders at once take %v, more than their %v", took, limits[15])
	}
	if s.decodes < 10 {
		t.Errorf("%d rounds decide nothing", s.decodes)
	}
}

func TestReadTurn(t *testing.T) {
	const whole = `{"mode": "eager", "batch": 1, "rate": 250.5, "first_ms": {"median": 20, "p99": 21}, "token_ms": {"median": 3.9, "p99": 4.1}, "wall_ms": {"median": 4.0, "p99": 4.2}}`
	got, err := readTurn(whole)
	if err != nil || got.Rate != 250.5 || got.First != 20 || got.Device != 3.9 || got.Wall != 4 || got.Tail != 4.2 {
		t.Errorf("read %+v, %v", got, err)
	}
	for says, bad := range map[string]tenant.Answer{
		"no JSON":        "rate=5",
		"no token":       `{"rate": 0, "wall_ms": {"median": 0}}`,
		"no time":        `{"rate": 5}`,
		"half an answer": tenant.Answer(whole[:40]),
	} {
		if got, err := readTurn(bad); err == nil {
			t.Errorf("%s is read as %+v", says, got)
		}
	}
}

// The program runs with a module in the place of PyTorch, so that what the suite asks of it is
// answered in words that the suite reads.
func TestDecodeProgram(t *testing.T) {
	ctx, bare := tenantOfStandIn(t)
	for name, flags := range map[string][]string{"on a GPU": nil, "on a CPU": {"--tiny", "--cpu"}} {
		t.Run(name, func(t *testing.T) {
			s, err := bare.Start(ctx, "python3", append([]string{"decode_loop.py"}, flags...)...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Kill)
			for _, w := range decodeWays(false) {
				decodes(ctx, t, s, w)
			}
			for command, want := range map[string]string{"start eager 3 0": "no_mode_eager_with_batch_3", "prepare slow 1": "no_mode_slow", "what": "no_command_what"} {
				if _, err := s.Ask(ctx, "%s", command); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %s", command, err, want)
				}
			}
			// A stop that comes too late has no answer: the next one is that of info.
			if err := s.Send("stop"); err != nil {
				t.Fatal(err)
			}
			if a, err := s.Ask(ctx, "info"); err != nil || !strings.Contains(string(a), `"layers"`) {
				t.Errorf("info: %q, %v", a, err)
			}
		})
	}
}

// decodes expects that a decoder prepares a way, starts, and answers to stop what it did.
func decodes(ctx context.Context, t *testing.T, s *tenant.Session, w way) {
	t.Helper()
	if _, err := s.Ask(ctx, "%s", w.prepare()); err != nil {
		t.Fatal(err)
	}
	if err := s.Send(w.start(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := sleep(ctx, 20*time.Millisecond); err != nil { // or no stop comes while it works
		t.Fatal(err)
	}
	a, err := s.Ask(ctx, "stop")
	if err != nil {
		t.Fatal(err)
	}
	turn, err := readTurn(a)
	if err != nil || turn.Rate <= 0 || turn.Wall <= 0 || turn.Tail < turn.Wall || turn.Device <= 0 {
		t.Errorf("%s: %q is read as %+v, %v", w, a, turn, err)
	}
}
