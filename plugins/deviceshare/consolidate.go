// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/holds"
	"deviceshare/plugins/deviceshare/room"
)

// consolidateAction is the action consolidate, which Volcano does not have. It does nothing without
// the plugin.
type consolidateAction struct{}

// Name implements framework.Action.
func (consolidateAction) Name() string { return holds.Consolidate }

// Initialize implements framework.Action.
func (consolidateAction) Initialize() {}

// Execute implements framework.Action: roomAction does the work.
func (consolidateAction) Execute(*framework.Session) {}

// UnInitialize implements framework.Action.
func (consolidateAction) UnInitialize() {}

const (
	// mostMoved bounds the arguments moves and jobs, and mostWait the times.
	mostMoved = 64
	mostWait  = 30 * 24 * time.Hour
)

// readMoveLimits reads the arguments of the action consolidate. It returns all mistakes.
func readMoveLimits(raw framework.Arguments) (room.MoveLimits, []string) {
	limits := room.DefaultMoveLimits()
	var mistakes []string
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		wrong := ""
		switch value := raw[name]; name {
		case "after":
			limits.After, wrong = readWait(value)
		case "rest":
			limits.Rest, wrong = readWait(value)
		case "moves":
			limits.Moves, wrong = readNumber(value)
		case "jobs":
			limits.Jobs, wrong = readNumber(value)
		default:
			wrong = "unknown argument: want after, jobs, moves or rest"
		}
		if wrong != "" {
			mistakes = append(mistakes, fmt.Sprintf("configurations[%s].arguments.%s: %s", holds.Consolidate, name, wrong))
		}
	}
	return limits, mistakes
}

func readNumber(value any) (n int, wrong string) {
	n, isNumber := value.(int)
	if !isNumber || n < 1 || n > mostMoved {
		return 0, fmt.Sprintf("%v: want a number from 1 to %d", value, mostMoved)
	}
	return n, ""
}

func readWait(value any) (d time.Duration, wrong string) {
	text, _ := value.(string)
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > mostWait {
		return 0, fmt.Sprintf("%v: want a duration such as 60s or 1h, %v at most", value, mostWait)
	}
	return d, ""
}
