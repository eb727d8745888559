// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
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
	for i := range 1 + r.IntN(4) {
		l := randomLabels(r, 3)
		if len(l) == 0 {
			continue
		}
		rule := sharing.Avoidance{Rule: fmt.Sprint(i), Mutual: true}
		for key, value := range l {
			rule.Pods = append(rule.Pods, sharing.LabelRequirement{Key: key, Values: []string{value}})
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

// A new pod keeps away from a pod on a device if, and only if, a rule names both: by the labels
// that both have now.
func TestPodsOfOneRuleAreKeptApartAndOthersAreNot(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 1))
	apart, together := 0, 0
	for i := range 20000 {
		rules, said := randomRules(r)
		s := DefaultSettings()
		s.Apart = rules
		a, b := randomLabels(r, 3), randomLabels(r, 3)
		there, err := s.NeighboursOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: b}})
		if err != nil {
			t.Fatal(err)
		}
		come, _ := s.ReadRequest(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: a}})
		d := sharing.Device{ID: "GPU-0", Healthy: true, Memory: sharing.GiB, Cores: 100, MaxShares: 9, Mode: sharing.TimeSlicing}
		v := sharing.NewView(&d, []sharing.Held{{Owner: "there", Neighbours: there}}, nil)
		_, clashes := v.FindClash(&come)
		if want := concern(said, a, b); clashes != want {
			t.Fatalf("%d: rules %v, pods %v and %v: kept apart %v, want %v", i, said, a, b, clashes, want)
		}
		if clashes {
			apart++
		} else {
			together++
		}
	}
	if apart < 500 || together < 500 {
		t.Errorf("%d apart, %d together: not mixed", apart, together)
	}
}

// A pod runs whose annotation somebody has spoilt. What kept others away must not let them come.
func TestAPodWhoseWishesCannotBeReadAcceptsNone(t *testing.T) {
	s := DefaultSettings()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{wire.UserNotBeside: "app=="}}}
	if n, err := s.NeighboursOf(pod); err != nil || n.IsAlone() {
		t.Errorf("%+v, %v: the value may be empty", n, err)
	}
	pod.Annotations[wire.UserNotBeside] = "app!=llm"
	n, err := s.NeighboursOf(pod)
	if err == nil || !n.IsAlone() || !strings.Contains(err.Error(), wire.UserNotBeside) {
		t.Errorf("%+v, %v", n, err)
	}
}

// What we read of a selector, the library of Kubernetes reads in the same way.
func FuzzSelectorsAreReadAsKubernetesReadsThem(f *testing.F) {
	for _, text := range []string{"app=llm", "app==llm,tier", "app in (a, b),x=", "a/b=c", "app in (a,b", "é=1", "a=b=c", "a in ()", "x in (,)", "-a=b", "a.b/c in (D)", "in in (in)", "a  =  b", "=", ","} {
		f.Add(text, "a", "b")
	}
	f.Fuzz(func(t *testing.T, text, app, tier string) {
		p := podspec.Pod{Annotations: map[string]string{wire.UserNotBeside: text}}
		n, mistakes := request.Neighbours(&p)
		if len(mistakes) > 0 || strings.Contains(text, ";") {
			return
		}
		theirs, err := labels.Parse(text)
		if err != nil {
			t.Fatalf("%q is read, and Kubernetes refuses it: %v", text, err)
		}
		has := map[string]string{"app": app, "tier": tier, "x": ""}
		requirements, _ := theirs.Requirements()
		for _, r := range requirements {
			if has[r.Key()] == "" && r.Values().Len() > 0 {
				has[r.Key()] = slices.Sorted(slices.Values(r.Values().UnsortedList()))[0]
			}
		}
		for _, l := range []map[string]string{has, {"app": app}, {}} {
			if got, want := n.Avoids[0].Pods.Matches(l), theirs.Matches(labels.Set(l)); got != want {
				t.Fatalf("%q with %q: %v, Kubernetes says %v", text, l, got, want)
			}
		}
	})
}
