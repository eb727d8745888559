// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Ledger is what a scheduler believes that pods hold of the node: lines by UID, one for each share.
type Ledger map[string][]string

// holding is one share of a container in words. Equal words mean equal shares.
func holding(container string, s Share) string {
	text := fmt.Sprintf("%s has %d bytes and %d %% of device %s in mode %s", container, s.Memory, s.Cores, s.Device, s.Mode)
	if s.Whole {
		text += ", the whole of it"
	}
	if s.Profile != "" {
		text += fmt.Sprintf(", as %s at slice %d", s.Profile, s.Start)
	}
	return text
}

// holdings are all shares of a pod, in a fixed order.
func (p Pod) holdings() []string {
	var out []string
	for _, c := range p.Containers {
		for _, s := range c.Shares {
			out = append(out, holding(c.Name, s))
		}
	}
	slices.Sort(out)
	return out
}

// readLedger reads the scheduler's answer about one node. It is an error if the scheduler cannot
// read a pod: what it believes of the devices is then less than what was given.
func readLedger(text []byte, node string) (Ledger, error) {
	var answer struct {
		Nodes map[string]struct {
			Owners map[string]struct {
				Shares []struct {
					Container, Device, Mode, Profile string
					MemoryBytes                      int64
					CoresPercent, Start              int
					Whole                            bool
				}
			}
			Blocked []string
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("read the scheduler's ledger: %w", err)
	}
	n := answer.Nodes[node]
	if len(n.Blocked) > 0 {
		return nil, fmt.Errorf("the scheduler cannot read pods %q", n.Blocked)
	}
	out := Ledger{}
	for uid, o := range n.Owners {
		out[uid] = []string{}
		for _, s := range o.Shares {
			share := Share{Device: s.Device, Mode: s.Mode, Memory: s.MemoryBytes, Cores: s.CoresPercent, Whole: s.Whole, Profile: s.Profile, Start: s.Start}
			out[uid] = append(out[uid], holding(s.Container, share))
		}
		slices.Sort(out[uid])
	}
	return out, nil
}

// ledgerContradicts compares the shares of each pod that both the API server and the scheduler
// know. A pod that only one of them knows is no contradiction: each learns of some pods before the
// other.
func ledgerContradicts(s Scene) []Violation {
	var out []Violation
	for _, uid := range sorted(s.Pods) {
		if text := s.Ledger.contradicts(uid, s.Pods[uid]); text != "" {
			out = append(out, Violation{"ledger", text})
		}
	}
	return out
}

// contradicts says what the scheduler believes of a pod and its annotation does not say; empty if
// there is no such thing, or one of them knows nothing of it.
func (l Ledger) contradicts(uid string, p Pod) string {
	believed, known := l[uid]
	if !p.Holds || !known || slices.Equal(believed, p.holdings()) {
		return ""
	}
	return fmt.Sprintf("the scheduler believes that of %s %q, its annotation says %q", p.Name, believed, p.holdings())
}

// disagreement compares everything that a scheduler believes with what the API server says. It is
// empty if they are equal. Only a cluster in which nothing happens can be asked so.
func disagreement(pods map[string]Pod, l Ledger) string {
	var out []string
	for _, uid := range sorted(pods) {
		p := pods[uid]
		if _, known := l[uid]; p.Holds && !known {
			out = append(out, fmt.Sprintf("the scheduler does not know %s", p.Name))
		} else if text := l.contradicts(uid, p); text != "" {
			out = append(out, text)
		}
	}
	for _, uid := range sorted(l) {
		if p := pods[uid]; !p.Holds {
			out = append(out, fmt.Sprintf("the scheduler keeps %q for pod %s %s, which holds nothing", l[uid], uid, p.Name))
		}
	}
	return strings.Join(out, "; ")
}
