// SPDX-License-Identifier: Apache-2.0

package holds

import (
	"fmt"
	"strconv"
	"strings"
)

// Reason is why a pod has to leave, as its condition DisruptionTarget says it. It has no percent
// sign: Volcano and client-go format such texts.
type Reason struct {
	// For is namespace/name of the pod that gets the room, and Node where.
	For, Node string
	// Priority is that of the job that gets the room, Own that of the victim's.
	Priority, Own int32
	// Reclaimed says that the victim's queue has more than it deserves.
	Reclaimed bool
	// Kept is the node on which a place is kept for a victim that moves, "" for one that does not.
	Kept string
}

const (
	reasonBegin = "makes room on "
	reasonFor   = " for "
	reasonKept  = "; it may move, and a place is kept for it on "
	toBeSpared  = `; pods with the annotation volcano.sh/preemptable "false" are spared`
)

// String returns the sentence.
func (r Reason) String() string {
	switch {
	case r.Kept != "":
		return reasonBegin + r.Node + reasonFor + r.For + reasonKept + r.Kept
	case r.Reclaimed:
		return fmt.Sprintf("%s%s%s%s, whose queue has less than it deserves%s", reasonBegin, r.Node, reasonFor, r.For, toBeSpared)
	}
	return fmt.Sprintf("%s%s%s%s (priority %d, this one %d)%s", reasonBegin, r.Node, reasonFor, r.For, r.Priority, r.Own, toBeSpared)
}

// ParseReason reads for whom a victim makes room, and where. It returns false for a text that is
// not a Reason.
func ParseReason(text string) (r Reason, ok bool) {
	rest, ok := strings.CutPrefix(text, reasonBegin)
	if !ok {
		return Reason{}, false
	}
	if moves, kept, is := strings.Cut(rest, reasonKept); is {
		node, pod, ok := strings.Cut(moves, reasonFor)
		return Reason{For: pod, Node: node, Kept: kept}, ok && node != "" && pod != "" && kept != ""
	}
	rest, ok = strings.CutSuffix(rest, toBeSpared)
	if !ok {
		return Reason{}, false
	}
	node, rest, ok := strings.Cut(rest, reasonFor)
	if !ok || node == "" {
		return Reason{}, false
	}
	if pod, reclaimed := strings.CutSuffix(rest, ", whose queue has less than it deserves"); reclaimed {
		return Reason{For: pod, Node: node, Reclaimed: true}, pod != ""
	}
	pod, rest, ok := strings.Cut(rest, " (priority ")
	if !ok || pod == "" {
		return Reason{}, false
	}
	of, rest, ok := strings.Cut(rest, ", this one ")
	if !ok {
		return Reason{}, false
	}
	own, ok := strings.CutSuffix(rest, ")")
	if !ok {
		return Reason{}, false
	}
	priority, err := strconv.ParseInt(of, 10, 32)
	ownPriority, err2 := strconv.ParseInt(own, 10, 32)
	if err != nil || err2 != nil {
		return Reason{}, false
	}
	return Reason{For: pod, Node: node, Priority: int32(priority), Own: int32(ownPriority)}, true
}
