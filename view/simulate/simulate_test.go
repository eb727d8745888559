// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
	"deviceshare/view/simulate"
)

// memory is what each device of the tests has, in MiB.
const memory = 16384

func list(pairs ...any) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i].(string))] = resource.MustParse(fmt.Sprint(pairs[i+1]))
	}
	return out
}

// node has devices in mode hami-core, 8 processors and a label that says which.
func node(name string, devices int) *corev1.Node {
	inv := sharing.Inventory{Node: name}
	for i := range devices {
		inv.Devices = append(inv.Devices, sharing.Device{
			ID: sharing.DeviceID(fmt.Sprintf("GPU-%s-%d", name, i)), Index: i, Model: "Test", Memory: sharing.MiBs(memory),
			Cores: 100, MaxShares: 10, Healthy: true, Mode: sharing.HAMiCore, NUMA: -1,
		})
	}
	annotations, err := wire.NodeAnnotations(inv, 1)
	if err != nil {
		panic(err)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{"kubernetes.io/hostname": name, "zone": "zone-" + name}},
		Status: corev1.NodeStatus{
			Allocatable: list("cpu", 8, "memory", "64Gi", "pods", 100, wire.ResourceNumber, devices*10, wire.ResourceMemory, devices*memory, wire.ResourceCores, devices*100),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func captured(objects ...any) *capture.State {
	s := &capture.State{Taken: time.Unix(1700000000, 0).UTC(), Scheduling: &capture.Scheduling{}}
	for _, o := range objects {
		s.Add(o)
	}
	s.Sort()
	return s
}

// asks is a pod as its owner writes it, with one container.
func asks(name, resources string, more ...string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  schedulerName: volcano\n  containers: [{name: main, image: x, resources: {limits: {%s}}}]\n%s---\n",
		name, resources, strings.Join(more, ""))
}

func share(mib int) string {
	return fmt.Sprintf("volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: %d", mib)
}

func added(t testing.TB, text string) simulate.Added {
	t.Helper()
	a, err := simulate.Decode(strings.NewReader(text), "default")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func ask(t testing.TB, s *capture.State, q simulate.Question) *view.WhatIf {
	t.Helper()
	q.Backends, q.SchedulerName = factory.New(), "volcano"
	w, err := simulate.Run(s, &q)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// again writes a capture and reads it back: what is simulated is what a file says.
func again(t testing.TB, s *capture.State) *capture.State {
	t.Helper()
	var b bytes.Buffer
	if err := capture.Write(&b, s); err != nil {
		t.Fatal(err)
	}
	s, err := capture.ReadAll(&b)
	if err != nil || len(s.Unread) > 0 {
		t.Fatalf("%v %v", err, s.Unread)
	}
	return s
}

// outcome finds what became of a pod.
func outcome(t testing.TB, w *view.WhatIf, pod string) view.Outcome {
	t.Helper()
	for _, o := range w.Pods {
		if o.Pod == pod {
			return o
		}
	}
	t.Fatalf("nothing is said of pod %s: %+v", pod, w.Pods)
	return view.Outcome{}
}

func TestAPodThatFitsIsPlacedAndOneThatDoesNotIsToldWhy(t *testing.T) {
	s := again(t, captured(node("a", 1), node("b", 2)))
	w := ask(t, s, simulate.Question{Add: added(t, asks("small", share(4096))+asks("huge", share(2*memory)))})
	small := outcome(t, w, "default/small")
	if small.Node == "" || len(small.Holds) != 1 || small.Holds[0].Memory != 4096<<20 {
		t.Errorf("small: %+v", small)
	}
	if huge := outcome(t, w, "default/huge"); huge.Node != "" || !strings.Contains(huge.Why, "NotEnoughMemory") {
		t.Errorf("huge: %+v", huge)
	}
	if w.Before.Placed != 0 || w.After.Placed != 1 || w.After.Waiting != 1 || w.After.Models[0].MemoryPromised != 4096<<20 {
		t.Errorf("before %+v, after %+v", w.Before, w.After)
	}
}

// A capture keeps that a pod has claims, and no names of it where names are hashed.
func TestAPodWithClaimsThatNobodyAllocatesWaitsInACaptureToo(t *testing.T) {
	claimant := waiting("claimant", "4096")
	claimant.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "secret-nic", ResourceClaimName: ptr.To("secret-claim")}}
	state := captured(withGroups(node("a", 1), claimant, waiting("other", "4096"))...)
	for name, s := range map[string]*capture.State{"plain": again(t, state), "hashed": again(t, state.Hash([]byte("0123456789abcdef")))} {
		var text bytes.Buffer
		if err := capture.Write(&text, s); err != nil {
			t.Fatal(err)
		}
		if w := ask(t, s, simulate.Question{}); w.After.Placed != 1 || w.After.Waiting != 1 {
			t.Errorf("%s: %d are placed, %d wait", name, w.After.Placed, w.After.Waiting)
		}
		if shown := strings.Count(text.String(), "secret-"); (shown > 0) != (name == "plain") || strings.Contains(text.String(), "secret-claim") {
			t.Errorf("%s: names of claims are in it %d times:\n%s", name, shown, &text)
		}
	}
}

// What the cluster has besides devices keeps a pod away as it does in a cluster.
func TestEverythingThatVolcanoLooksAtIsInACapture(t *testing.T) {
	tainted := node("a", 1)
	tainted.Spec.Taints = []corev1.Taint{{Key: "only", Value: "others", Effect: corev1.TaintEffectNoSchedule}}
	cordoned := node("c", 1)
	cordoned.Spec.Unschedulable = true
	eater := &corev1.Pod{ // without devices, of another scheduler
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "eater", UID: "eater", Labels: map[string]string{"app": "eater"}},
		Spec:       corev1.PodSpec{NodeName: "b", Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: list("cpu", 7)}}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	s := captured(tainted, node("b", 1), cordoned, eater, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 100})
	tolerates := "  tolerations: [{key: only, operator: Exists}]\n"
	selects := func(zone string) string { return "  nodeSelector: {zone: " + zone + "}\n" }
	flees := "  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: eater}}}]}}\n"
	const cpu = ", cpu: "
	cases := []struct{ name, text, node, why string }{
		{"only b is left", asks("p", share(1024)), "b", ""},
		{"two processors are nowhere", asks("p", share(1024)+cpu+"2"), "", "Insufficient cpu"},
		{"two processors are on the tainted node", asks("p", share(1024)+cpu+"2", tolerates), "a", ""},
		{"a selector", asks("p", share(1024), selects("zone-a"), tolerates), "a", ""},
		{"a selector of a tainted node", asks("p", share(1024), selects("zone-a")), "", "untolerated taint"},
		{"a cordoned node", asks("p", share(1024), selects("zone-c")), "", "unschedulable"},
		{"a pod it flees", asks("p", share(1024), flees), "", "anti-affinity"},
		{"a pod it flees, and another node", asks("p", share(1024), flees, tolerates), "a", ""},
	}
	state := again(t, s)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := outcome(t, ask(t, state, simulate.Question{Add: added(t, c.text)}), "default/p")
			if o.Node != c.node || !strings.Contains(o.Why, c.why) || c.why == "" && o.Why != "" {
				t.Errorf("on %q, %q; want %q, %q", o.Node, o.Why, c.node, c.why)
			}
		})
	}
}

// Labels, taints and names are hashed alike where they are set and where they are asked for.
func TestAHashedCaptureHasTheSameOutcome(t *testing.T) {
	tainted := node("a", 1)
	tainted.Spec.Taints = []corev1.Taint{{Key: "only", Value: "others", Effect: corev1.TaintEffectNoSchedule}}
	waiting := func(name string, edit func(*corev1.PodSpec)) *corev1.Pod {
		p := placedOn(t, name, "a", 4096)
		p.Annotations, p.UID = map[string]string{wire.GroupName: name}, types.UID(name)
		p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending
		edit(&p.Spec)
		return p
	}
	tolerates := func(s *corev1.PodSpec) {
		s.Tolerations = []corev1.Toleration{{Key: "only", Operator: corev1.TolerationOpEqual, Value: "others"}}
		s.NodeSelector = map[string]string{"zone": "zone-a"}
	}
	flees := func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"zone": "zone-a"} }
	plain := again(t, captured(tainted, node("b", 1), waiting("tolerates", tolerates), waiting("flees", flees),
		waiting("free", func(*corev1.PodSpec) {}), group("tolerates"), group("flees"), group("free")))
	hashed := again(t, plain.Hash([]byte("salt")))
	for name, s := range map[string]*capture.State{"plain": plain, "hashed": hashed} {
		w := ask(t, s, simulate.Question{})
		on := map[string]int{}
		for _, o := range w.Pods {
			if o.Was != view.Waited {
				t.Errorf("%s: %+v", name, o)
			}
			on[o.Node]++
		}
		if len(on) != 2 || w.Before.Waiting != 3 || w.After.Placed != 2 || w.After.Waiting != 1 || w.After.Models[0].Shares != 2 {
			t.Errorf("%s: on %v, before %+v, after %+v", name, on, w.Before, w.After)
		}
		if _, named := on["a"]; named == s.Hashed {
			t.Errorf("%s: on %v", name, on)
		}
	}
}

func TestTheSameQuestionHasTheSameAnswer(t *testing.T) {
	text := ""
	for i := range 60 { // more than fit, and enough that the policy learns from them
		text += asks(fmt.Sprintf("pod-%d", i), share(1024*(1+i*7%12)))
	}
	s := captured(node("a", 4), node("b", 4), node("c", 2), node("d", 2))
	for _, oneByOne := range []bool{false, true} {
		first := ""
		for try := range 3 {
			got, err := json.Marshal(ask(t, again(t, s), simulate.Question{Add: added(t, text), OneByOne: oneByOne}))
			if err != nil {
				t.Fatal(err)
			}
			if try == 0 {
				first = string(got)
			} else if string(got) != first {
				t.Fatalf("one by one %v: got\n%s\nand before\n%s", oneByOne, got, first)
			}
		}
	}
}

func TestAGangIsPlacedWholeOrNotAtAll(t *testing.T) {
	group := "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {name: gang}\nspec: {minMember: 3, queue: default}\n---\n"
	pods := ""
	for i := range 3 {
		pods += strings.Replace(asks(fmt.Sprintf("g-%d", i), share(memory)), "metadata: {", "metadata: {annotations: {scheduling.k8s.io/group-name: gang}, ", 1)
	}
	for devices, placed := range map[int]int{2: 0, 3: 3} {
		w := ask(t, captured(node("a", devices)), simulate.Question{Add: added(t, group+pods)})
		if w.After.Placed != placed || w.After.Waiting != 3-placed || w.After.Models[0].Shares != placed {
			t.Errorf("%d devices: %s", devices, w.Text(view.Paint{}, true))
		}
	}
}

func TestThePodsOfANodeThatLeavesArePlacedAnew(t *testing.T) {
	s := captured(node("a", 1), node("b", 1))
	w := ask(t, s, simulate.Question{Add: added(t, asks("one", share(memory))+asks("two", share(memory))+asks("three", share(1024)))})
	if outcome(t, w, "default/three").Node != "" {
		t.Fatalf("the cluster is not full: %+v", w.Pods)
	}
	on := outcome(t, w, "default/one").Node
	full := captured(node("a", 1), node("b", 1), placedOn(t, "one", on, 8192), group("one"))
	w = ask(t, full, simulate.Question{Remove: []string{on}})
	if o := outcome(t, w, "default/one"); o.Was != view.Moved || o.Node == "" || o.Node == on || len(o.Holds) != 1 {
		t.Errorf("got %+v", o)
	}
	w = ask(t, full, simulate.Question{Remove: []string{"a", "b"}})
	if o := outcome(t, w, "default/one"); o.Node != "" || o.Why == "" {
		t.Errorf("without nodes: %+v", o)
	}
	q := simulate.Question{Backends: factory.New(), SchedulerName: "volcano", Remove: []string{"z"}}
	if _, err := simulate.Run(full, &q); err == nil || !strings.Contains(err.Error(), "no such node") {
		t.Errorf("a node that is not there: %v", err)
	}
}

// Who may move is in a capture: the annotation, and that a controller makes the pod again.
func TestPodsThatMayMoveDo(t *testing.T) {
	isController := true
	for name, c := range map[string]struct {
		owners []metav1.OwnerReference
		moves  bool
	}{
		"a pod of a controller": {owners: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "x", UID: "rs", Controller: &isController}}, moves: true},
		"a pod of nobody":       {},
	} {
		t.Run(name, func(t *testing.T) {
			x, y := placedOn(t, "x", "a", 4096), placedOn(t, "y", "b", 4096)
			x.Annotations[wire.UserMayMove], x.OwnerReferences, y.UID = wire.MayMove, c.owners, "uid-2"
			s := again(t, captured(node("a", 1), node("b", 1), x, y, group("x"), group("y")))
			w := ask(t, s, simulate.Question{Add: added(t, asks("whole", "volcano.sh/vgpu-number: 1"))})
			if on := outcome(t, w, "default/whole").Node; (on == "a") != c.moves {
				t.Errorf("the pod is on node %q", on)
			}
			const why = "makes room on a for default/whole; it may move, and a place is kept for it on b"
			if moved := len(w.Evicted) == 1 && w.Evicted[0].Pod == "default/x" && w.Evicted[0].Why == why; moved != c.moves {
				t.Errorf("evicted %+v", w.Evicted)
			}
		})
	}
}

func group(name string) *schedulingv1beta1.PodGroup {
	return &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: schedulingv1beta1.PodGroupSpec{MinMember: 1},
		Status: schedulingv1beta1.PodGroupStatus{Phase: schedulingv1beta1.PodGroupRunning},
	}
}

// placedOn is a running pod with a share of the first device of a node, in a group of its name.
func placedOn(t testing.TB, name, node string, mib int64) *corev1.Pod {
	t.Helper()
	annotations, err := wire.PlacementAnnotations(sharing.Placement{Node: node, Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{{
		Device: sharing.DeviceID("GPU-" + node + "-0"), Mode: sharing.HAMiCore, Memory: sharing.MiBs(mib),
	}}}}}, 1, 1700000000)
	if err != nil {
		t.Fatal(err)
	}
	annotations[wire.GroupName] = name
	amounts := list(wire.ResourceNumber, 1, wire.ResourceMemory, mib)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-1", Annotations: annotations},
		Spec: corev1.PodSpec{NodeName: node, SchedulerName: "volcano", Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Limits: amounts, Requests: amounts},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func TestMistakesOfAddedPodsAreTold(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: apps/v1\nkind: Deployment\n":                                      "want Pod of v1",
		"apiVersion: v1\nkind: Pod\nspec: {containerz: []}\n":                          "containerz",
		"kind: Pod\napiVersion: v1\n---\nkind: Pod\napiVersion: v1\nspec: {nope: 1}\n": "document 2",
		"a: [": "document 1",
	} {
		if _, err := simulate.Decode(strings.NewReader(text), "default"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	w := ask(t, captured(node("a", 1)), simulate.Question{Add: added(t, strings.Replace(asks("p", share(1)), "metadata: {", "metadata: {annotations: {volcano.sh/vgpu-mode: magic}, ", 1))})
	if o := outcome(t, w, "default/p"); !strings.Contains(o.Why, "the webhook refuses it") || !strings.Contains(o.Why, "magic") {
		t.Errorf("got %+v", o)
	}
	old := captured(node("a", 1))
	old.Scheduling = nil
	if _, err := simulate.Run(old, &simulate.Question{Backends: factory.New(), SchedulerName: "volcano"}); err == nil || !strings.Contains(err.Error(), "take it again") {
		t.Errorf("a capture of version 1: %v", err)
	}
	for config, want := range map[string]string{
		"actions: \"fly\"\ntiers: []":                                                        "fly",
		"actions: \"allocate\"\ntiers: [{plugins: [{name: gang}]}]":                          "deviceshare is in none",
		"actions: \"allocate\"\ntiers: [{plugins: [{name: deviceshare}, {name: extender}]}]": "extender asks a server",
	} {
		q := simulate.Question{Backends: factory.New(), SchedulerName: "volcano", Config: config}
		if _, err := simulate.Run(captured(node("a", 1)), &q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", config, err, want)
		}
	}
}

func TestATraceIsReadStrictlyWithTheLineOfEveryMistake(t *testing.T) {
	bad := "arrival,duration,devices,colour\n"
	if _, err := simulate.ReadTrace(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), `line 1: unknown column "colour"`) {
		t.Errorf("got %v", err)
	}
	bad = "arrival,duration,devices,memory_mib,name\n0,10,1,100,a\n-1,0,1,x,a\n5,5\n1,1,0,7,b\n"
	_, err := simulate.ReadTrace(strings.NewReader(bad))
	for _, want := range []string{`line 3: arrival: "-1"`, `line 3: duration: "0"`, `line 3: memory_mib: "x"`, `line 3: name: "a" is that of line 2 too`, "line 4: 2 fields, want 5", "line 5: memory_mib and cores"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestATraceComesAndGoes(t *testing.T) {
	// One device; two pods of half of it run side by side, the third waits for the first to end.
	pods, err := simulate.ReadTrace(strings.NewReader("arrival,duration,devices,memory_mib\n0,10,1,8192\n2,10,1,8192\n3,4,1,8192\n5,1,1,99999\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []string{"", "binpack", "spread"} {
		s, err := simulate.Replay(captured(node("a", 1)), &simulate.Question{Backends: factory.New(), SchedulerName: "volcano", Policy: policy}, pods)
		if err != nil {
			t.Fatal(err)
		}
		const half = int64(8192) << 20
		moment := func(second int64, running, waiting int, memory int64) view.Moment {
			return view.Moment{Second: second, Running: running, Waiting: waiting, Memory: memory}
		}
		want := []view.Moment{
			moment(0, 1, 0, half), moment(2, 2, 0, 2*half), moment(3, 2, 1, 2*half), moment(5, 2, 2, 2*half),
			moment(10, 2, 1, 2*half), moment(12, 1, 1, half), moment(14, 0, 1, 0),
		}
		if fmt.Sprint(s.Points) != fmt.Sprint(want) || s.Placed != 3 || s.NeverPlaced != 1 || s.Waited != 7 {
			t.Errorf("%s: got %+v\nwant %+v", policy, s, want)
		}
		var out bytes.Buffer
		if err := view.WriteSeries(&out, []view.Series{*s}); err != nil || strings.Count(out.String(), "\n") != len(want)+1 {
			t.Errorf("%v\n%s", err, out.String())
		}
		if text := view.SeriesText([]view.Series{*s}, view.Paint{}); !strings.Contains(text, "█") {
			t.Errorf("no chart:\n%s", text)
		}
	}
}
