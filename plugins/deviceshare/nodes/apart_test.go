// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"maps"
	"math/rand/v2"
	"testing"
)

// randomLabels are some of few labels, so that rules often concern pods.
func randomLabels(r *rand.Rand, most int) map[string]string {
	out := map[string]string{}
	for range r.IntN(most + 1) {
		out[[]string{"app", "tier", "team"}[r.IntN(3)]] = []string{"a", "b"}[r.IntN(2)]
	}
	return out
}

func randomRules(r *rand.Rand) (rules ApartRules, labels []map[string]string) {
	for range 1 + r.IntN(4) {
		l := randomLabels(r, 3)
		if len(l) == 0 {
			continue
		}
		rule := ApartRule{Name: "rule"}
		for key, value := range l {
			rule.Labels = append(rule.Labels, ApartLabel{Key: key, Value: value})
		}
		rules, labels = append(rules, rule), append(labels, l)
	}
	return rules, labels
}

// concern reports whether any rule has only labels of both pods: what Volcano's rules say.
func concern(rules []map[string]string, a, b map[string]string) bool {
	for _, rule := range rules {
		both := true
		for key, value := range rule {
			both = both && a[key] == value && b[key] == value
		}
		if both {
			return true
		}
	}
	return false
}

// A new pod that is placed at all has the group of a pod on a device if, and only if, a rule
// concerns both, or both have one group of their own.
func TestPodsOfOneRuleHaveOneGroupAndOthersHaveNot(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 1))
	apart, together, waiting := 0, 0, 0
	for i := range 20000 {
		rules, labels := randomRules(r)
		reduced := rules.Reduce()
		a, b, own := randomLabels(r, 3), randomLabels(r, 3), []string{"", "", "ns/gang"}[r.IntN(3)]
		group, err := reduced.Group(a, own)
		if err != nil {
			waiting++
			continue
		}
		// The device's pod is one that could be placed, too, before or under these rules.
		if _, err := reduced.Group(b, own); err != nil {
			continue
		}
		held := reduced.effectiveGroup(b, own)
		want := concern(labels, a, b) || own != "" && group == own && held == own
		if got := group != "" && group == held; got != want {
			t.Fatalf("%d: rules %v, pods %v and %v with group %q: kept apart %v, want %v", i, labels, a, b, own, got, want)
		}
		if want {
			apart++
		} else {
			together++
		}
	}
	if apart < 500 || together < 500 || waiting < 500 {
		t.Errorf("%d apart, %d together, %d waiting: not mixed", apart, together, waiting)
	}
}

func TestAnEditOfOtherRulesLeavesTheGroupsOfPodsAsTheyAre(t *testing.T) {
	app := ApartRule{Name: "[0]", Labels: []ApartLabel{{Key: "app", Value: "a"}}}
	tier := ApartRule{Name: "[1]", Labels: []ApartLabel{{Key: "tier", Value: "a"}}}
	labels := map[string]string{"app": "a"}
	before, _ := ApartRules{app}.Group(labels, "")
	after, _ := ApartRules{tier, app}.Group(labels, "")
	if before == "" || before != after {
		t.Errorf("%q, then %q", before, after)
	}
	if got := (ApartRules{tier}).effectiveGroup(labels, before); got != "" {
		t.Errorf("a rule that is gone leaves the group %q", got)
	}
	withTier := maps.Clone(labels)
	withTier["tier"] = "a"
	if _, err := (ApartRules{tier, app}).Group(withTier, ""); err == nil {
		t.Error("a pod of two rules is placed by one of them")
	}
	wide := ApartRule{Name: "[2]", Labels: []ApartLabel{{Key: "app", Any: true}}}
	if got := (ApartRules{app, wide}).Reduce(); len(got) != 1 || got[0].Name != "[2]" {
		t.Errorf("%v", got)
	}
}
