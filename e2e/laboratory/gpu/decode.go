// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

// way is how a decoder makes tokens: mode eager launches kernel by kernel, mode graph one graph per
// token, each for so many sequences at once.
type way struct {
	mode  string
	batch int
}

func (w way) String() string { return fmt.Sprintf("%s, batch %d", w.mode, w.batch) }

func (w way) prepare() string { return fmt.Sprintf("prepare %s %d", w.mode, w.batch) }

// start decodes until stop, and counts nothing while it settles: time that a tenant has saved is
// spent then.
func (w way) start(settle time.Duration) string {
	return fmt.Sprintf("start %s %d %d", w.mode, w.batch, settle.Milliseconds())
}

// serving is the way in which tenants are compared: that of a model server under load.
var serving = way{"graph", 8}

// decodeWays are those of experiment 14, or two of them where there is less time.
func decodeWays(few bool) []way {
	if few {
		return []way{{"eager", 1}, {"graph", 1}}
	}
	return []way{{"eager", 1}, {"graph", 1}, {"graph", 8}, {"graph", 32}}
}

// decodeTenants are those of experiment 14, the bare one first. other is HAMi-core's library, "" to
// leave it out.
func decodeTenants(other string) []costTenant {
	tenants := launchTenants()[:3]
	if other != "" {
		tenants = append(tenants, costTenant{"HAMi-core", tenant.Other, tenant.Limits{Library: other}})
	}
	return tenants
}

// readTurn reads what a decoder answers to stop, as decode_loop.py and cudaload write it.
func readTurn(a tenant.Answer) (verdict.Turn, error) {
	var t struct {
		Rate  float64 `json:"rate"`
		First spread  `json:"first_ms"`
		Token spread  `json:"token_ms"`
		Wall  spread  `json:"wall_ms"`
	}
	if err := json.Unmarshal([]byte(a), &t); err != nil {
		return verdict.Turn{}, fmt.Errorf("read a decoder's answer %q: %w", a, err)
	}
	if t.Rate <= 0 || t.Wall.Median <= 0 {
		return verdict.Turn{}, fmt.Errorf("a decoder made no token: %s", a)
	}
	return verdict.Turn{Rate: t.Rate, First: t.First.Median, Device: t.Token.Median, Wall: t.Wall.Median, Tail: t.Wall.Tail}, nil
}

// spread is of milliseconds.
type spread struct {
	Median float64 `json:"median"`
	Tail   float64 `json:"p99"`
}

// openDecoders starts a decoder in each tenant, all at once, and has them prepare the ways. On the
// fake driver cudaload stands in for the PyTorch program, by the same words.
func (b *bench) openDecoders(ctx context.Context, tenants []costTenant, ways []way) ([]*tenant.Session, error) {
	if !b.fake {
		if err := b.torch(ctx); err != nil {
			return nil, err
		}
		if err := b.hasRoomForDecoders(ctx, len(tenants)); err != nil {
			return nil, err
		}
	}
	var sessions []*tenant.Session
	for _, c := range tenants {
		t, err := b.machine.New(c.kind, c.limits)
		if err != nil {
			return nil, err
		}
		command := []string{"python3", b.decoder}
		if b.fake {
			command = []string{b.load, b.machine.UUID}
		}
		s, err := b.start(ctx, t, command[0], command[1:]...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		sessions = append(sessions, s)
	}
	for _, w := range ways {
		if _, err := askAll(ctx, sessions, w.prepare()); err != nil {
			return nil, err
		}
	}
	return sessions, nil
}

// decoderBytes is what a decoder takes of a card: 15 GB of weights, its cache, and room for a
// prompt of 32 sequences.
const decoderBytes = 21 * gib

// hasRoomForDecoders is a skip where so many do not fit.
func (b *bench) hasRoomForDecoders(ctx context.Context, n int) error {
	a, err := b.watcher.Ask(ctx, "nvml")
	if err != nil {
		return fmt.Errorf("ask how large the card is: %w", err)
	}
	total, err := a.Int("total")
	if err == nil && int64(n)*decoderBytes > total {
		return skip(fmt.Sprintf("%d decoders want %d GiB", n, int64(n)*decoderBytes/gib))
	}
	return err
}

// askAll sends a command to all before it waits for any.
func askAll(ctx context.Context, sessions []*tenant.Session, command string) ([]tenant.Answer, error) {
	for _, s := range sessions {
		if err := s.Send(command); err != nil {
			return nil, err
		}
	}
	answers := make([]tenant.Answer, len(sessions))
	for i, s := range sessions {
		var err error
		if answers[i], err = s.Answer(ctx, command); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// takeTurn has decoders work at the same time for one turn, while the watcher looks at the clock.
func (b *bench) takeTurn(ctx context.Context, w way, sessions ...*tenant.Session) ([]verdict.Turn, error) {
	for _, s := range sessions {
		if err := s.Send(w.start(b.scale.settle)); err != nil {
			return nil, err
		}
	}
	watch := fmt.Sprintf("watch %d %d", b.scale.turn.Milliseconds()/4, b.scale.turn.Milliseconds()/2)
	if err := b.watcher.Send(watch); err != nil {
		return nil, err
	}
	if err := sleep(ctx, b.scale.turn); err != nil {
		return nil, err
	}
	answers, err := askAll(ctx, sessions, "stop")
	saw, watchErr := b.watcher.Answer(ctx, watch)
	if err != nil {
		return nil, err
	}
	if mhz, err := saw.Float("mhz"); watchErr == nil && err == nil && !b.fake {
		b.watched(mhz)
	}
	turns := make([]verdict.Turn, len(answers))
	for i, a := range answers {
		if turns[i], err = readTurn(a); err != nil {
			return nil, err
		}
	}
	return turns, nil
}

// decodeRounds has all take turns, the order changed in every round, so that whatever drifts hits
// all. Rounds by way, then decoder; what was measured before an error is kept, in whole rounds.
func (b *bench) decodeRounds(ctx context.Context, sessions []*tenant.Session, ways []way, rounds int) (map[way][][]verdict.Turn, error) {
	out := map[way][][]verdict.Turn{}
	for r := range rounds {
		for _, w := range ways {
			round := make([]verdict.Turn, len(sessions))
			for i := range sessions {
				who := (i + r) % len(sessions)
				turns, err := b.takeTurn(ctx, w, sessions[who])
				if err != nil {
					return out, err
				}
				round[who] = turns[0]
			}
			out[w] = append(out[w], round)
		}
	}
	return out, nil
}

// decodeCost is experiment 14: what the library costs a token.
func decodeCost(ctx context.Context, b *bench) {
	tenants, ways := decodeTenants(b.other), decodeWays(b.other != "" || b.fake)
	sessions, err := b.openDecoders(ctx, tenants, ways)
	got := map[way][][]verdict.Turn{}
	if err == nil {
		got, err = b.decodeRounds(ctx, sessions, ways, b.scale.decodes)
	}
	for _, w := range ways {
		for i, c := range tenants[1:] {
			b.row(context.WithoutCancel(ctx), fmt.Sprintf("decode, %s: %s", w, c.name), func() (verdict.Finding, error) {
				if len(got[w]) == 0 && err != nil {
					return verdict.Finding{}, err
				}
				f := verdict.Decode(b.bounds, b.scale.decodes, column(got[w], 0), column(got[w], i+1))
				if c.kind == tenant.Other { // reported, not judged
					f.Misses, f.Note = nil, true
				}
				return f, nil
			})
		}
	}
}

// column is one decoder's turns of all rounds.
func column(rounds [][]verdict.Turn, i int) []verdict.Turn {
	out := make([]verdict.Turn, len(rounds))
	for r := range rounds {
		out[r] = rounds[r][i]
	}
	return out
}
