// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
	"deviceshare/view/capture"
)

const secret = "hunter2"

// pod is a pod with a secret wherever a pod can carry one.
func pod(namespace, name string) *corev1.Pod {
	number := corev1.ResourceList{wire.ResourceNumber: resource.MustParse("1"), corev1.ResourceCPU: resource.MustParse("1")}
	placement, err := wire.EncodePlacement(sharing.Placement{Node: "node-a", Group: namespace + "/gang", Containers: []sharing.ContainerShares{{
		Container: "main", Shares: []sharing.Share{{Device: "GPU-1", Mode: sharing.HAMiCore, Memory: sharing.GiB}},
	}}})
	if err != nil {
		panic(err)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"token": secret},
			Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": secret, wire.PodPlacement: placement, wire.GroupName: "gang"},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-a", Volumes: []corev1.Volume{{Name: secret}},
			Containers: []corev1.Container{{
				Name: "main", Image: "registry/" + secret, Command: []string{secret}, Args: []string{secret},
				Env: []corev1.EnvVar{{Name: "PASSWORD", Value: secret}}, Resources: corev1.ResourceRequirements{Limits: number},
			}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Message: secret},
	}
}

func state(pods int) *capture.State {
	text := "nvidia:\n"
	s := &capture.State{Taken: time.Unix(1700000000, 0).UTC(), DeviceConfig: &text, Forbidden: []string{"get configmaps/x -n team-a"}}
	inventory, err := wire.EncodeInventory(sharing.Inventory{Node: "node-a", Devices: []sharing.Device{{
		ID: "GPU-1", Model: "Test", Memory: sharing.GiB, Cores: 100, MaxShares: 10, Healthy: true, Mode: sharing.HAMiCore, NUMA: -1,
	}}})
	if err != nil {
		panic(err)
	}
	cordons, err := wire.EncodeCordons(sharing.Cordons{"GPU-1": {Reason: "asked by team-a", By: "carol", Until: "2030-01-01T00:00:00Z"}})
	if err != nil {
		panic(err)
	}
	s.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Annotations: map[string]string{wire.NodeInventory: inventory, wire.NodeCordon: cordons, "other": secret}}})
	for i := range pods {
		s.Add(pod("team-a", fmt.Sprintf("train-%d", i)))
	}
	s.Add(&schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "gang"}, Spec: schedulingv1beta1.PodGroupSpec{MinMember: 2, Queue: "research"}})
	s.Add(&schedulingv1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "research", Annotations: map[string]string{"x": secret}}})
	s.Sort()
	return s
}

func written(t testing.TB, s *capture.State) string {
	t.Helper()
	var b bytes.Buffer
	if err := capture.Write(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func read(t testing.TB, text string) *capture.State {
	t.Helper()
	s, err := capture.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestACaptureIsReadBackAsItWasWrittenInAnyOrderOfItsLines(t *testing.T) {
	want := written(t, state(20))
	lines := strings.Split(strings.TrimSpace(want), "\n")
	rand.New(rand.NewSource(1)).Shuffle(len(lines)-1, func(i, j int) { lines[i+1], lines[j+1] = lines[j+1], lines[i+1] })
	got := read(t, strings.Join(lines, "\n"))
	if len(got.Unread) > 0 {
		t.Fatalf("unread: %v", got.Unread)
	}
	if again := written(t, got); again != want {
		t.Errorf("written again it differs:\n%s\nwant\n%s", again, want)
	}
	if len(got.Pods) != 20 || got.DeviceConfig == nil || len(got.Forbidden) != 1 || !got.Taken.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("read %d pods, configuration %v, taken %v", len(got.Pods), got.DeviceConfig, got.Taken)
	}
}

func TestACaptureHoldsNoSecretsOfPods(t *testing.T) {
	if text := written(t, state(1)); strings.Contains(text, secret) {
		t.Errorf("the capture holds a secret:\n%s", text)
	}
}

func TestPodsWithoutDevicesAreNotCaptured(t *testing.T) {
	s := &capture.State{}
	plain := pod("ns", "web")
	plain.Annotations, plain.Spec.Containers[0].Resources = nil, corev1.ResourceRequirements{}
	if s.Add(plain) || len(s.Pods) > 0 {
		t.Error("a pod that asks for no extended resource was kept")
	}
}

func TestOfAMemberOfAGroupWithoutDevicesOnlyWhatCountsIsCaptured(t *testing.T) {
	member := pod("ns", "launcher")
	delete(member.Annotations, wire.PodPlacement)
	member.Annotations[wire.UserPolicy] = "spread"
	member.Spec.Containers[0].Resources.Limits = nil
	member.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no room"}, {Type: corev1.PodReady, Message: secret},
	}
	s := &capture.State{}
	if !s.Add(member) {
		t.Fatal("the pod was not kept")
	}
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "launcher", UID: "uid-launcher", Annotations: map[string]string{wire.GroupName: "gang"}},
		Spec:       corev1.PodSpec{NodeName: "node-a"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: member.Status.Conditions[:1]},
	}
	if again := read(t, written(t, s)); len(again.Pods) != 1 || !reflect.DeepEqual(again.Pods[0], want) {
		t.Errorf("got %+v, want one pod %+v", again.Pods, want)
	}
}

func TestTheReaderIsStrictAboutTheVersion(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an empty file":         {"", "it is empty"},
		"another format":        {`{"kind":"List"}`, `does not say "deviceshareCapture"`},
		"no JSON":               {"apiVersion: v1", "read the first line"},
		"a later version":       {`{"deviceshareCapture":3}`, "version 3, this program reads versions 1 to 2"},
		"a version that is nil": {`{"deviceshareCapture":null}`, "does not say"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := capture.Read(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that says %q", err, c.want)
			}
		})
	}
}

func TestALineThatCannotBeReadIsToldAndCostsNoOther(t *testing.T) {
	text := written(t, state(3))
	bad := "{\"kind\":\"Pod\",\"object\":5}\n{\"kind\":\"Pod\"}\n{\"kind\":\"Comet\",\"object\":{}}\nnonsense\n"
	got := read(t, text+bad)
	if len(got.Pods) != 3 || len(got.Unread) != 4 {
		t.Errorf("%d pods, unread %v; want 3 pods and 4 lines", len(got.Pods), got.Unread)
	}
	got = read(t, text+strings.Repeat("nonsense\n", 100))
	if len(got.Unread) != 21 || !strings.Contains(got.Unread[20], "80 lines more") {
		t.Errorf("unread %v; want 20 lines and how many more", got.Unread)
	}
}

// Long texts are read in parts, on all processors: order, numbers of lines and counts are those of
// the whole.
func TestALongCaptureIsReadLikeAShortOne(t *testing.T) {
	lines := strings.SplitAfter(written(t, state(3000)), "\n")
	want := strings.Join(lines, "")
	if len(want) < 1<<20 {
		t.Fatalf("the capture is only %d bytes long", len(want))
	}
	if got := written(t, read(t, want)); got != want {
		t.Error("what was read is not what was written")
	}
	for _, at := range []int{1500, 2999, 3001} {
		lines[at-1] = "{\n"
	}
	got := read(t, strings.Join(lines, ""))
	var said []string
	for _, u := range got.Unread {
		line, _, _ := strings.Cut(u, ":")
		said = append(said, line)
	}
	if !slices.Equal(said, []string{"line 1500", "line 2999", "line 3001"}) || len(got.Pods) != 2997 {
		t.Errorf("unread %v, %d pods; want lines 1500, 2999 and 3001, and 2997 pods", said, len(got.Pods))
	}
}

// Containers of equal text are read once: pods that differ in one letter must not get each other's.
func TestPodsOfOneTemplateAreReadLikeOthers(t *testing.T) {
	s := &capture.State{}
	for i := range 40 {
		p := pod("team-a", fmt.Sprintf("train-%02d", i))
		p.Spec.Containers[0].Name = []string{"main", "other"}[i%2]
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{wire.ResourceNumber: *resource.NewQuantity(int64(1+i%3), resource.DecimalSI)}
		p.Spec.InitContainers = p.Spec.Containers[:i%4/3]
		s.Add(p)
	}
	s.Sort()
	for i, got := range read(t, written(t, s)).Pods {
		want := s.Pods[i]
		if got.Name != want.Name || !equality.Semantic.DeepEqual(got.Spec, want.Spec) {
			t.Errorf("pod %s has %+v, want %+v", got.Name, got.Spec, want.Spec)
		}
	}
}

// A line whose beginning is as Write writes it may go on in any way.
func TestLinesInAnotherSpellingAreReadToo(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(written(t, state(1))), "\n")
	for i, line := range lines[1:] {
		kind, object, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(line, `{"kind":`), "}"), `,"object":`)
		for name, spelled := range map[string]string{
			"the object first": `{"object":` + object + `,"kind":` + kind + `}`, "spaces": ` { "kind" : ` + kind + ` , "object" : ` + object + " } ",
			"the object twice": `{"kind":` + kind + `,"object":{},"object":` + object + `}`, "another key": `{"kind":` + kind + `,"object":` + object + `,"more":1}`,
		} {
			now := slices.Clone(lines)
			now[i+1] = spelled
			if got, want := written(t, read(t, strings.Join(now, "\n"))), strings.Join(lines, "\n")+"\n"; got != want {
				t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
			}
		}
	}
}

func TestHashedNamesAreConsistentAndDoNotShow(t *testing.T) {
	s := state(2)
	before := written(t, s)
	hashed := s.Hash([]byte("salt"))
	text := written(t, hashed)
	for _, name := range []string{"node-a", "team-a", "train-", "main", "gang", "research", "carol", "asked"} {
		if strings.Contains(text, name) {
			t.Errorf("the name %q shows:\n%s", name, text)
		}
	}
	if written(t, s) != before {
		t.Error("the state was changed")
	}
	p, n := hashed.Pods[0], hashed.Nodes[0]
	placement, err := wire.DecodePlacement(p.Annotations[wire.PodPlacement])
	if err != nil {
		t.Fatal(err)
	}
	inv, found, err := wire.ReadNode(n.Annotations, n.Name, 1)
	if err != nil || !found || inv.Node != n.Name {
		t.Errorf("inventory of %q for node %q: %v", inv.Node, n.Name, err)
	}
	if c, err := wire.ReadCordons(n.Annotations); err != nil || c["GPU-1"].By == "" || c["GPU-1"].Until != "2030-01-01T00:00:00Z" {
		t.Errorf("cordons %+v, %v", c, err)
	}
	g := hashed.Groups[0]
	if p.Spec.NodeName != n.Name || placement.Node != n.Name || placement.Containers[0].Container != p.Spec.Containers[0].Name ||
		placement.Group != g.Namespace+"/"+g.Name || p.Annotations[wire.GroupName] != g.Name || g.Spec.Queue != hashed.Queues[0].Name {
		t.Errorf("names do not agree any more: %+v", placement)
	}
	if other := s.Hash([]byte("pepper")); reflect.DeepEqual(other.Pods[0].Name, p.Name) {
		t.Error("two salts give the same hash")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(written(f, state(2)))
	f.Add("{\"deviceshareCapture\":1}\n{\"kind\":\"Node\",\"object\":{\"metadata\":{}}}")
	f.Add(written(f, fullState()))
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(io.Reader) (*capture.State, error){capture.Read, capture.ReadAll} {
			s, err := parse(strings.NewReader(text))
			if err != nil {
				return
			}
			s.Unread = nil
			once := written(t, s)
			s, err = parse(strings.NewReader(once))
			if err != nil {
				t.Fatal(err)
			}
			if again := written(t, s); again != once {
				t.Errorf("read and written again it differs:\n%s\n%s", once, again)
			}
			s.Hash([]byte("x"))
		}
	})
}
