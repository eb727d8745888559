// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	volcanofake "volcano.sh/apis/pkg/client/clientset/versioned/fake"

	"deviceshare/sharing/wire"
	"deviceshare/view/capture"
)

// patience ends what hangs; it says nothing about speed.
const patience = 10 * time.Minute

// run follows fake clients until the test ends.
func run(t *testing.T, core *fake.Clientset, batch *volcanofake.Clientset) *Follower {
	t.Helper()
	f := New(core, batch, "kube-system")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return f
}

func wait(t *testing.T, f *Follower) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := f.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// watched waits until all of these are watched: the fake API server loses what is made before.
func watched(t *testing.T, api *clienttesting.Fake, resources ...string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		missing := slices.DeleteFunc(slices.Clone(resources), func(resource string) bool {
			return slices.ContainsFunc(api.Actions(), func(a clienttesting.Action) bool { return a.Matches("watch", resource) })
		})
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nobody watches %v", missing)
		}
	}
}

// until waits for changes until the state is as wanted. It looks only when it is told of a change.
func until(t *testing.T, f *Follower, want string) {
	t.Helper()
	got := names(f.State())
	for end := time.After(patience); got != want; got = names(f.State()) {
		select {
		case <-f.Changed():
		case <-end:
			t.Fatalf("nobody tells of a change: the state is %q, want %q", got, want)
		}
	}
}

// names lists what a state holds.
func names(s *capture.State) string {
	var out []string
	for _, n := range s.Nodes {
		out = append(out, n.Name)
	}
	for _, p := range s.Pods {
		out = append(out, p.Name)
	}
	for _, q := range s.Queues {
		out = append(out, q.Name)
	}
	for _, g := range s.Groups {
		out = append(out, g.Name)
	}
	return strings.Join(out, " ")
}

func nodeOf(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func podOf(name string, asks bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	if asks {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{wire.ResourceNumber: resource.MustParse("1")}
	}
	return p
}

func TestTheStateFollowsTheCluster(t *testing.T) {
	core := fake.NewClientset(nodeOf("node-1"), podOf("train", true), podOf("web", false))
	batch := volcanofake.NewSimpleClientset(&schedulingv1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "research"}})
	f := run(t, core, batch)
	wait(t, f)
	until(t, f, "node-1 train research")
	watched(t, &core.Fake, "nodes", "pods")
	watched(t, &batch.Fake, "queues", "podgroups")
	ctx := t.Context()
	pods := core.CoreV1().Pods("ns")
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(pods.Create(ctx, podOf("other", false), metav1.CreateOptions{}))
	must(pods.Create(ctx, podOf("infer", true), metav1.CreateOptions{}))
	until(t, f, "node-1 infer train research")
	must(batch.SchedulingV1beta1().PodGroups("ns").Create(ctx, &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang"}}, metav1.CreateOptions{}))
	until(t, f, "node-1 infer train research gang")
	must(nil, pods.Delete(ctx, "train", metav1.DeleteOptions{}))
	must(core.CoreV1().Nodes().Create(ctx, nodeOf("node-2"), metav1.CreateOptions{}))
	until(t, f, "node-1 node-2 infer research gang")
	bound := podOf("infer", true)
	bound.Spec.NodeName = "node-2"
	must(pods.Update(ctx, bound, metav1.UpdateOptions{}))
	for end := time.Now().Add(patience); f.State().Pods[0].Spec.NodeName != "node-2"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the pod's node is not seen")
		}
	}
}

// The oracle is a state to which all objects that are left are added at once.
func TestAfterAnyOrderOfWritesTheStateIsThatOfWhatIsLeft(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	f := New(fake.NewClientset(), volcanofake.NewSimpleClientset(), "kube-system")
	pods := f.stores[slices.IndexFunc(f.stores, func(s *store) bool { return s.what == "pods" })]
	left := map[string]*corev1.Pod{}
	for step := range 3000 {
		p := podOf(fmt.Sprintf("pod-%d", r.IntN(12)), r.IntN(3) > 0)
		p.Spec.NodeName = fmt.Sprintf("node-%d", r.IntN(2))
		var err error
		switch _, there := left[p.Name]; {
		case r.IntN(40) == 0:
			left = map[string]*corev1.Pod{p.Name: p}
			err = pods.Replace([]any{p}, "")
		case r.IntN(3) == 0:
			delete(left, p.Name)
			err = pods.Delete(p)
		case there:
			left[p.Name], err = p, pods.Update(p)
		default:
			left[p.Name], err = p, pods.Add(p)
		}
		if err != nil {
			t.Fatal(err)
		}
		var want capture.State
		for _, p := range left {
			want.Add(p)
		}
		want.Sort()
		got := f.State()
		same := slices.EqualFunc(got.Pods, want.Pods, func(a, b *corev1.Pod) bool { return a.Name == b.Name && a.Spec.NodeName == b.Spec.NodeName })
		if !same {
			t.Fatalf("step %d: got %q, want %q", step, names(got), names(&want))
		}
	}
}

func TestWhatChangesNothingThatIsShownIsNotTold(t *testing.T) {
	f := New(fake.NewClientset(), volcanofake.NewSimpleClientset(), "kube-system")
	nodes := f.stores[0]
	told := func() bool {
		select {
		case <-f.Changed():
			return true
		default:
			return false
		}
	}
	n := nodeOf("node-1")
	if err := nodes.Add(n); err != nil || !told() {
		t.Fatalf("a new node is not told: %v", err)
	}
	alive := n.DeepCopy()
	alive.ResourceVersion, alive.Annotations = "2", map[string]string{"a": "b"}
	alive.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, LastHeartbeatTime: metav1.Now()}}
	if err := nodes.Update(alive); err != nil || told() {
		t.Errorf("a sign of life is told: %v", err)
	}
	alive.Spec.Unschedulable = true
	if err := nodes.Update(alive); err != nil || !told() {
		t.Errorf("a cordon is not told: %v", err)
	}
}

func refuse(c *clienttesting.Fake, verb, resource string, err func(clienttesting.Action) error) {
	c.PrependReactor(verb, resource, func(a clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err(a) })
}

func forbidden(a clienttesting.Action) error {
	return apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New("no right"))
}

func TestWithoutVolcanoOrTheRightToReadItsObjectsTheRestIsFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		err  func(clienttesting.Action) error
		want []string
	}{
		"not installed": {func(a clienttesting.Action) error { return apierrors.NewNotFound(a.GetResource().GroupResource(), "") }, nil},
		"no right":      {forbidden, []string{"list queues.scheduling.volcano.sh", "list podgroups.scheduling.volcano.sh"}},
	} {
		t.Run(name, func(t *testing.T) {
			core, batch := fake.NewClientset(podOf("train", true)), volcanofake.NewSimpleClientset()
			refuse(&batch.Fake, "list", "*", c.err)
			f := run(t, core, batch)
			wait(t, f)
			s := f.State()
			if names(s) != "train" || !slices.Equal(s.Forbidden, c.want) || f.Trouble() != "" {
				t.Errorf("got %q, forbidden %q, trouble %q", names(s), s.Forbidden, f.Trouble())
			}
		})
	}
}

func TestARightThatIsNeededAndMissingIsNamed(t *testing.T) {
	core := fake.NewClientset()
	refuse(&core.Fake, "list", "pods", forbidden)
	f := run(t, core, volcanofake.NewSimpleClientset())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := f.Wait(ctx); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "list pods") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(f.Trouble(), "list pods") {
		t.Errorf("the trouble is %q", f.Trouble())
	}
}

func TestTheDeviceConfigurationIsRead(t *testing.T) {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "volcano-system", Name: "volcano-vgpu-device-config"}, Data: map[string]string{"device-config.yaml": "text"}}
	f := run(t, fake.NewClientset(m), volcanofake.NewSimpleClientset())
	wait(t, f)
	if s := f.State(); s.DeviceConfig == nil || *s.DeviceConfig != "text" {
		t.Errorf("got %v", s.DeviceConfig)
	}
}
