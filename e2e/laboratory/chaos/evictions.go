// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// The priority classes of a run, and their values. Pods without one have priority 0.
const (
	crowdClass     = "chaos-crowd"
	importantClass = "chaos-important"
)

func priorities() map[string]int32 { return map[string]int32{crowdClass: -10, importantClass: 100} }

// preemptableKey is an annotation that users write: whether a pod may be evicted.
const preemptableKey = "volcano.sh/preemptable"

// budgeted is the label of pods that a PodDisruptionBudget needs all of.
const budgeted = "chaos-budgeted"

// Eviction is what the condition DisruptionTarget says of a pod that a scheduler evicted.
type Eviction struct {
	// Text is the message. For is namespace/name of the pod that gets the room, with its priority
	// and the victim's own; For is empty if the text does not say it.
	Text          string
	For           string
	Priority, Own int32
}

// makesRoom matches the text of docs/evictions.md. Nothing of a run has a second queue, or pods
// that may move.
var makesRoom = regexp.MustCompile(`^makes room on \S+ for (\S+) \(priority (-?\d+), this one (-?\d+)\); `)

// readEviction reads for whom a scheduler had a pod leave; nil if none has said so.
func readEviction(p *corev1.Pod) *Eviction {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonPreemptionByScheduler
	})
	if i < 0 {
		return nil
	}
	e := &Eviction{Text: p.Status.Conditions[i].Message}
	if m := makesRoom.FindStringSubmatch(e.Text); m != nil {
		e.For, e.Priority, e.Own = m[1], number(m[2]), number(m[3])
	}
	return e
}

func number(digits string) int32 {
	n, _ := strconv.ParseInt(digits, 10, 32) // too long a number is no priority of a run
	return int32(n)
}

// sparedBy says what forbids everybody to evict a pod; empty if nothing does.
func sparedBy(p *corev1.Pod) string {
	switch {
	case p.Annotations[preemptableKey] == "false":
		return "its annotation " + preemptableKey
	case p.Labels[budgeted] != "":
		return "a PodDisruptionBudget"
	}
	return ""
}

// Standing is who a pod is to those that evict: also of pods that ask for nothing or wait.
type Standing struct {
	Name     string // with the namespace in front
	Priority int32
	SparedBy string
	Eviction *Eviction // nil if it was not evicted
	// Placed: it was given devices.
	Placed bool
}

// readStanding reads it.
func readStanding(p *corev1.Pod) Standing {
	s := Standing{Name: p.Namespace + "/" + p.Name, SparedBy: sparedBy(p), Eviction: readEviction(p)}
	if p.Spec.Priority != nil {
		s.Priority = *p.Spec.Priority
	}
	_, s.Placed = p.Annotations[placementKey]
	return s
}

// wrongEvictions lists pods that were evicted though something spares them, or for a pod that is
// not more important.
func wrongEvictions(s Scene) []Violation {
	priorities := map[string]int32{}
	for _, of := range s.Standings {
		priorities[of.Name] = of.Priority
	}
	var out []Violation
	for _, uid := range sorted(s.Standings) {
		of := s.Standings[uid]
		if of.Eviction == nil {
			continue
		}
		if text := of.wrong(priorities); text != "" {
			out = append(out, Violation{"evictions", fmt.Sprintf("pod %s was evicted %s: %s", of.Name, text, of.Eviction.Text)})
		}
	}
	return out
}

// wrong says what is wrong with a pod's eviction; empty if nothing is. A pod for which it makes
// room may have come and gone unseen: then only what the text says is compared.
func (s Standing) wrong(priorities map[string]int32) string {
	e := s.Eviction
	winner, seen := priorities[e.For]
	switch {
	case s.SparedBy != "":
		return "although " + s.SparedBy + " spares it"
	case e.For == "":
		return "for nobody"
	case e.Own != s.Priority:
		return fmt.Sprintf("as one of another priority than its own, %d", s.Priority)
	case seen && winner != e.Priority:
		return fmt.Sprintf("for one of another priority, %d", winner)
	case e.Priority <= e.Own:
		return "for one that is not more important"
	}
	return ""
}

// Evictions are figures of a run.
type Evictions struct {
	// Victims is how many pods were seen that were evicted, For how many others, and InVain how
	// many of those were never seen with a placement: deleted by their users before they got their
	// room, or not seen between two looks.
	Victims, For, InVain int
}

func (e Evictions) String() string {
	return fmt.Sprintf("%d pods seen that were evicted, for %d others, %d of them never seen with a place", e.Victims, e.For, e.InVain)
}

// countEvictions counts them.
func countEvictions(standings map[string]Standing) Evictions {
	placed, winners := map[string]bool{}, map[string]bool{}
	var out Evictions
	for _, s := range standings {
		placed[s.Name] = placed[s.Name] || s.Placed
		if s.Eviction != nil && s.Eviction.For != "" {
			out.Victims++
			winners[s.Eviction.For] = true
		}
	}
	out.For = len(winners)
	for name := range winners {
		if !placed[name] {
			out.InVain++
		}
	}
	return out
}
