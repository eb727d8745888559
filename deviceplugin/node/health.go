// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ApplicationXIDs are critical errors caused by the program that ran, not by the
// device: graphics engine exception, page fault, reset channel, stopped
// processing, video processor exception, context switch timeout. The list is the
// default of NVIDIA's own device plugin; the meanings are in NVIDIA's "XID
// Errors".
func ApplicationXIDs() []uint64 { return []uint64{13, 31, 43, 45, 68, 109} }

// health is whether a device works. It breaks at once when it does not answer a
// probe, or reports a critical error that counts. It works again at the first
// probe it answers; after a critical error only when none came for the quiet time.
// A probe of a device that waits for a reset or a repair fails until it got that, if the
// driver knows of it.
type health struct {
	silent  bool   // it did not answer the last probe
	faulted bool   // a critical error counts
	since   Moment // of the last critical error
	// cause is why it broke first. What the driver says may differ from one probe
	// to the next, and the node is not written each time.
	cause string
}

func (h health) isBroken() bool { return h.silent || h.faulted }

func (h health) becauseOf(why string) health {
	if h.cause == "" {
		h.cause = why
	}
	if h.cause == "" {
		h.cause = "it does not work"
	}
	return h
}

func (h health) afterSilence(why string) health {
	h.silent = true
	return h.becauseOf(why)
}

func (h health) afterFault(xid uint64, at Moment) health {
	h.faulted, h.since = true, at
	return h.becauseOf(fmt.Sprintf("critical error XID %d", xid))
}

func (h health) afterAnswer(at, quiet Moment) health {
	h.silent = false
	if h.faulted && at-h.since >= quiet {
		h.faulted = false
	}
	if !h.isBroken() {
		return health{}
	}
	return h
}

// ReadHealthRules returns the rules that ignore the critical errors with these
// numbers; "all", or "xids" as NVIDIA's plugin says it, ignores every one.
func ReadHealthRules(ignored []string, quiet Moment) (HealthRules, error) {
	rules := HealthRules{Quiet: quiet}
	for _, text := range ignored {
		text = strings.TrimSpace(text)
		if text == "all" || text == "xids" {
			return HealthRules{IgnoreAll: true, Quiet: quiet}, nil
		}
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return HealthRules{}, fmt.Errorf("%q is no error number", text)
		}
		rules.Ignored = append(rules.Ignored, n)
	}
	return rules, nil
}

// Counts reports whether a critical error says something about the device.
func (r HealthRules) Counts(xid uint64) bool { return !r.IgnoreAll && !slices.Contains(r.Ignored, xid) }
