// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
	"deviceshare/view/capture"
)

// fullState is state with what only simulations need. Labels of these objects are kept.
func fullState() *capture.State {
	s := state(3)
	s.Scheduling = &capture.Scheduling{Config: ptr.To("actions: \"allocate\"\n")}
	member := pod("team-a", "train-3")
	member.Labels = map[string]string{"purpose": "train", "volcano.sh/preemptable": "false"}
	for _, o := range []any{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b", Labels: map[string]string{"zone": "east"}}},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 7},
		member, budget("serve", "serve"), budget("train", "train"),
		namespace("team-b", map[string]string{"tier": "gold"}), namespace("team-a", map[string]string{wire.UserMayMove: wire.MayMove, "tier": "iron"}),
	} {
		s.Add(o)
	}
	s.Sort()
	return s
}

// budget is a budget of pods with a label, with secrets wherever it can carry some.
func budget(name, purpose string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, Labels: map[string]string{"x": secret}, Annotations: map[string]string{"x": secret}},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(2)), Selector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"purpose": purpose},
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "volcano.sh/preemptable", Operator: metav1.LabelSelectorOpIn, Values: []string{"false"}},
				{Key: "canary", Operator: metav1.LabelSelectorOpDoesNotExist},
			},
		}},
		Status: policyv1.PodDisruptionBudgetStatus{
			DisruptionsAllowed: 1, DisruptedPods: map[string]metav1.Time{"train-1": {Time: time.Unix(1700000000, 0)}},
			Conditions: []metav1.Condition{{Type: "x", Message: secret}},
		},
	}
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{"x": secret}},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{secret}},
	}
}

func readAll(t testing.TB, text string) *capture.State {
	t.Helper()
	s, err := capture.ReadAll(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWhatASimulationNeedsIsReadBackAsItWasWrittenInAnyOrderOfItsLines(t *testing.T) {
	want := written(t, fullState())
	lines := strings.Split(strings.TrimSpace(want), "\n")
	for seed := range int64(5) {
		rand.New(rand.NewSource(seed)).Shuffle(len(lines)-1, func(i, j int) { lines[i+1], lines[j+1] = lines[j+1], lines[i+1] })
		got := readAll(t, strings.Join(lines, "\n"))
		if again := written(t, got); again != want || len(got.Unread) > 0 {
			t.Errorf("written again it differs:\n%s\nwant\n%s\nunread %q", again, want, got.Unread)
		}
	}
	if strings.Contains(want, secret) {
		t.Errorf("the capture holds a secret:\n%s", want)
	}
	s := readAll(t, want).Scheduling
	if len(s.Nodes) != 1 || len(s.Pods) != 1 || len(s.Classes) != 1 || len(s.Budgets) != 2 || len(s.Namespaces) != 2 || s.Config == nil {
		t.Errorf("got %+v", s)
	}
	if b := s.Budgets[1]; b.Name != "train" || b.Status.DisruptionsAllowed != 1 || len(b.Status.DisruptedPods) != 1 || b.Spec.MinAvailable != nil {
		t.Errorf("got the budget %+v", b)
	}
}

// Views skip these lines, however they are spelled.
func TestViewsReadNothingOfWhatASimulationNeeds(t *testing.T) {
	text := written(t, fullState())
	for _, spelled := range []string{text, strings.ReplaceAll(text, `{"kind":`, `{ "kind": `)} {
		got := read(t, spelled)
		if got.Scheduling != nil || len(got.Unread) > 0 || len(got.Nodes) != 2 || len(got.Pods) != 4 {
			t.Errorf("got %+v", got)
		}
	}
}

func TestAHashedBudgetSelectsTheSamePods(t *testing.T) {
	s := fullState()
	before := written(t, s)
	hashed := readAll(t, written(t, s.Hash([]byte("salt"))))
	for _, name := range []string{"node-a", "node-b", "team-a", "team-b", "train", "serve", "urgent", "east", "zone", "tier", "gold", "iron", "purpose", "canary"} {
		if text := written(t, hashed); strings.Contains(text, name) {
			t.Errorf("the name %q shows:\n%s", name, text)
		}
	}
	if written(t, s) != before {
		t.Error("the state was changed")
	}
	p := hashed.Scheduling.Pods[0]
	selecting := 0
	for _, b := range hashed.Scheduling.Budgets {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		if b.Namespace == p.Namespace && selector.Matches(labels.Set(p.Labels)) {
			selecting++
		}
		if b.Status.DisruptionsAllowed != 1 || len(b.Status.DisruptedPods) != 1 || !slices.ContainsFunc(hashed.Pods, func(p *corev1.Pod) bool {
			_, found := b.Status.DisruptedPods[p.Name]
			return found
		}) {
			t.Errorf("the status %+v names no pod", b.Status)
		}
	}
	if selecting != 1 {
		t.Errorf("%d budgets select the pod, want 1", selecting)
	}
}

func TestAHashedWishKeepsTheSamePodsAway(t *testing.T) {
	for text, away := range map[string]bool{
		"purpose=train": true, "purpose in (serve, train)": true, "purpose": true, "tier=gold; purpose == train , volcano.sh/preemptable=false": true,
		"purpose=serve": false, "purpose=train,tier=gold": false, "purpose!=train": true, // nobody may be beside what cannot be read
	} {
		s := fullState()
		shy := pod("team-a", "shy")
		shy.Annotations[wire.UserNotBeside] = text
		s.Add(shy)
		s.Sort()
		hashed := readAll(t, written(t, s.Hash([]byte("salt"))))
		if all := written(t, hashed); strings.Contains(all, "purpose") || strings.Contains(all, "train") {
			t.Errorf("%q: a label shows:\n%s", text, all)
		}
		named := slices.IndexFunc(hashed.Scheduling.Pods, func(p *corev1.Pod) bool { return p.Labels["volcano.sh/preemptable"] != "" })
		for _, p := range hashed.Pods {
			wish, wishes := p.Annotations[wire.UserNotBeside]
			if !wishes {
				continue
			}
			n, mistakes := request.Neighbours(&podspec.Pod{Annotations: map[string]string{wire.UserNotBeside: wish}})
			got := n.IsAlone() || slices.ContainsFunc(n.Avoids, func(a sharing.Avoidance) bool { return a.Pods.Matches(hashed.Scheduling.Pods[named].Labels) })
			if got != away || (len(mistakes) > 0) != n.IsAlone() {
				t.Errorf("%q became %q: keeps away %v, want %v", text, wish, got, away)
			}
		}
	}
}

// The rules of the scheduler's configuration select pods by their labels, too.
func TestHashedRulesKeepTheSamePodsApart(t *testing.T) {
	const before = `# written by ` + secret + `
actions: "allocate, backfill" # for team-a
tiers:
- plugins:
  - name: gang
  - name: deviceshare
    arguments:
      deviceshare.ScheduleWeight: 10
      deviceshare.GPUExclusiveRules: RULES
`
	for name, c := range map[string]struct{ rules, want string }{
		"a rule that holds":             {"[{purpose: train}, {purpose: serve}]", "purpose=train purpose=serve"},
		"of two labels":                 {"[{purpose: train, volcano.sh/preemptable: \"false\"}]", "purpose=train volcano.sh/preemptable=false"},
		"a value that is no text":       {"[{purpose: true}]", "purpose=true"},
		"a text, which is a mistake":    {"purpose=train", "{unreadable"},
		"a list of texts, which is one": {"[purpose=train]", "{unreadable"},
		"none":                          {"[]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := fullState()
			s.Scheduling.Config = ptr.To(strings.Replace(before, "RULES", c.rules, 1))
			hashed := readAll(t, written(t, s.Hash([]byte("salt"))))
			text := *hashed.Scheduling.Config
			if strings.Contains(text, "train") || strings.Contains(text, secret) || strings.Contains(text, "team-a") {
				t.Errorf("a name shows:\n%s", text)
			}
			if !strings.Contains(text, "actions: allocate, backfill\n") || !strings.Contains(text, "deviceshare.ScheduleWeight: 10\n") {
				t.Errorf("more has changed:\n%s", text)
			}
			want := c.want
			for _, p := range hashed.Scheduling.Pods { // whose labels are purpose=train, volcano.sh/preemptable=false
				for key, value := range p.Labels {
					if key != "volcano.sh/preemptable" {
						want = strings.NewReplacer("purpose", key, "train", value).Replace(want)
					}
				}
			}
			for word := range strings.FieldsSeq(want) {
				key, value, _ := strings.Cut(word, "=")
				if !strings.Contains(text, key) || (value != "serve" && !strings.Contains(text, value)) {
					t.Errorf("no %s in\n%s", word, text)
				}
			}
		})
	}
}

func TestAConfigurationThatCannotBeReadShowsNoNames(t *testing.T) {
	s := fullState()
	s.Scheduling.Config, s.DeviceConfig = ptr.To("actions: ["+secret), ptr.To("# "+secret+"\nnvidia: {deviceSplitCount: 3}\n")
	hashed := readAll(t, written(t, s.Hash([]byte("salt"))))
	if *hashed.Scheduling.Config != "{unreadable" || *hashed.DeviceConfig != "nvidia:\n  deviceSplitCount: 3\n" {
		t.Errorf("became %q and %q", *hashed.Scheduling.Config, *hashed.DeviceConfig)
	}
}

// Whatever a label of a namespace says of its pods, a capture says, too.
func TestACaptureKeepsWhateverTheReadersOfNamespacesRead(t *testing.T) {
	for _, key := range append(wireKeys(t), "tier") {
		for _, value := range []string{"", "?", "true", "false", "even", "10m"} {
			labels := map[string]string{key: value}
			want := request.MovabilityOf(nil, labels)
			s := &capture.State{Scheduling: &capture.Scheduling{}}
			s.Add(namespace("ns", labels))
			for name, s := range map[string]*capture.State{"plain": s, "hashed": s.Hash([]byte("salt"))} {
				got := readAll(t, written(t, s)).Scheduling.Namespaces
				if len(got) != 1 || request.MovabilityOf(nil, got[0].Labels) != want {
					t.Errorf("%s: %s=%q is kept as %+v", name, key, value, got)
				}
				if name == "plain" && (got[0].Name != "ns" || !reflect.DeepEqual(got[0].Labels, labels)) {
					t.Errorf("%s=%q is kept as %+v", key, value, got)
				}
			}
		}
	}
}

func TestAnAnswerIsNoNameButWhatUsersWriteIs(t *testing.T) {
	labels := map[string]string{"volcano.sh/preemptable": "true", "volcano.sh/job-name": "secretjob", "mine": "true", wire.UserMayMove: "maybe"}
	s := &capture.State{Scheduling: &capture.Scheduling{}}
	s.Add(namespace("ns", labels))
	got := s.Hash([]byte("salt")).Scheduling.Namespaces[0].Labels
	if len(got) != 4 || got["volcano.sh/preemptable"] != "true" || !isHash(got["volcano.sh/job-name"]) || !isHash(got[wire.UserMayMove]) {
		t.Errorf("got %v", got)
	}
	for key, value := range got {
		if !strings.HasPrefix(key, "volcano.sh/") && (!isHash(key) || !isHash(value)) {
			t.Errorf("%s=%s shows what a user wrote", key, value)
		}
	}
}

func isHash(s string) bool { return len(s) == 13 && strings.HasPrefix(s, "h") }
