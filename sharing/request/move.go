// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"strconv"

	"deviceshare/sharing/wire"
)

// Movability is what a pod says of being ended to make room.
type Movability struct {
	// MayMove says that it may be made again elsewhere.
	MayMove bool
	// RestartCost is how much work its end loses at most, in seconds; 0 if it does not say.
	RestartCost int64
}

// MovabilityOf reads what a pod says by its annotations. What it does not say, a label of its
// namespace says. What cannot be read of a pod counts as no: [Rules.Read] reports it.
func MovabilityOf(annotations, namespaceLabels map[string]string) Movability {
	may, says := annotations[wire.UserMayMove]
	if !says {
		may = namespaceLabels[wire.UserMayMove]
	}
	m := Movability{MayMove: may == wire.MayMove}
	if text, says := annotations[wire.UserRestartCost]; says {
		m.RestartCost, _ = parseRestartCost(text)
	}
	return m
}

// mostRestartCost is a number of days that no pod has run for.
const mostRestartCost = 10_000 * 86_400

// parseRestartCost reads a number of seconds, minutes, hours or days.
func parseRestartCost(text string) (seconds int64, err error) {
	unit := int64(0)
	if text != "" {
		unit = map[byte]int64{'s': 1, 'm': 60, 'h': 3600, 'd': 86_400}[text[len(text)-1]]
	}
	n, err := strconv.ParseInt(text[:max(0, len(text)-1)], 10, 64)
	if unit == 0 || err != nil || n < 1 || n > mostRestartCost/unit {
		return 0, fmt.Errorf("%q is no time: want a number with a unit, such as 90s, 10m or 2h", text)
	}
	return n * unit, nil
}

func (r *reader) readMovability(a podAnnotations) {
	if text, ok := a.lookupKnown(wire.UserMayMove); ok && text != wire.MayMove && text != wire.MustStay {
		r.addMistake(annotationPath(wire.UserMayMove), fmt.Sprintf("unknown value %q: want %s or %s", text, wire.MayMove, wire.MustStay))
	}
	if text, ok := a.lookupKnown(wire.UserRestartCost); ok {
		if _, err := parseRestartCost(text); err != nil {
			r.addMistake(annotationPath(wire.UserRestartCost), err.Error())
		}
	}
}
