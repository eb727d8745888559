// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

// decodePairs is experiment 15: shares of a decoder alone, and of two that work at once, with the
// library and in the driver's time slices. MPS and MIG need a card that is set up for them.
func decodePairs(ctx context.Context, b *bench) {
	b.row(ctx, "decode alone at 10 to 90 %", func() (verdict.Finding, error) { return b.decodedAlone(ctx) })
	b.endSessions()
	for _, limits := range [][2]int{{50, 50}, {30, 70}, {10, 90}} {
		b.row(ctx, fmt.Sprintf("decode, %d %% and %d %% at once", limits[0], limits[1]), func() (verdict.Finding, error) {
			node := b.node(fmt.Sprintf("decode-%d", limits[0]))
			return b.decodedTogether(ctx, limits, [2]costTenant{
				{"first", tenant.Ours, tenant.Limits{Cores: limits[0], Node: node}},
				{"second", tenant.Ours, tenant.Limits{Cores: limits[1], Node: node}},
			})
		})
		b.endSessions()
	}
	b.row(ctx, "decode, two without the library", func() (verdict.Finding, error) {
		bare := costTenant{name: bareCalls, kind: tenant.Bare}
		return b.decodedTogether(ctx, [2]int{}, [2]costTenant{bare, bare})
	})
}

// decodedAlone measures limits while nothing else runs, and nothing is borrowed.
func (b *bench) decodedAlone(ctx context.Context) (verdict.Finding, error) {
	limits := []int{10, 30, 50, 70, 90}
	tenants := []costTenant{{name: bareCalls, kind: tenant.Bare}}
	for _, cores := range limits {
		tenants = append(tenants, costTenant{fmt.Sprint(cores), tenant.Ours, tenant.Limits{Cores: cores, Policy: "force"}})
	}
	ways := []way{serving}
	sessions, err := b.openDecoders(ctx, tenants, ways)
	if err != nil {
		return verdict.Finding{}, err
	}
	got, err := b.decodeRounds(ctx, sessions, ways, b.scale.decodePairs)
	if len(got[serving]) == 0 && err != nil {
		return verdict.Finding{}, err
	}
	var runs []verdict.Shared
	bare := rates(column(got[serving], 0))
	for i, cores := range limits {
		runs = append(runs, verdict.Shared{Limit: cores, Ratios: verdict.Ratios(rates(column(got[serving], i+1)), bare)})
	}
	return verdict.ShareOfTokens(b.bounds, b.scale.decodePairs, runs), nil
}

// decodedTogether measures two tenants at once, and a bare one alone in the same rounds. Limits of
// 0 promise nothing.
func (b *bench) decodedTogether(ctx context.Context, limits [2]int, two [2]costTenant) (verdict.Finding, error) {
	tenants := []costTenant{{name: bareCalls, kind: tenant.Bare}, two[0], two[1]}
	sessions, err := b.openDecoders(ctx, tenants, []way{serving})
	if err != nil {
		return verdict.Finding{}, err
	}
	m := verdict.PairedTurns{Limits: limits}
	for range b.scale.decodePairs {
		alone, err := b.takeTurn(ctx, serving, sessions[0])
		if err != nil {
			return verdict.Finding{}, err
		}
		both, err := b.takeTurn(ctx, serving, sessions[1], sessions[2])
		if err != nil {
			return verdict.Finding{}, err
		}
		m.Alone, m.First, m.Second = append(m.Alone, alone[0]), append(m.First, both[0]), append(m.Second, both[1])
	}
	return verdict.PairOfTurns(b.bounds, b.scale.decodePairs, m), nil
}

func rates(turns []verdict.Turn) []float64 {
	out := make([]float64, len(turns))
	for i, t := range turns {
		out[i] = t.Rate
	}
	return out
}
