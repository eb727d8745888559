// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"deviceshare/plugins/leader"
	"deviceshare/sharing/factory"
)

// bench is a Demand over a fake API server.
type bench struct {
	t      *testing.T
	client *fake.Clientset
	d      *Demand
	now    int64

	mu   sync.Mutex
	told []string
	made int
}

func (b *bench) Report(o *corev1.ObjectReference, reason, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, fmt.Sprintf("%s %s/%s: %s: %s", o.Kind, o.Namespace, o.Name, reason, message))
}

func newBench(t *testing.T, lead leader.Leadership) *bench {
	t.Helper()
	b := &bench{t: t, now: 1000, client: fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: ConfigMap}})}
	b.client.PrependReactor("create", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.made++
		pod := action.(k8stesting.CreateAction).GetObject().(*corev1.Pod)
		pod.Name, pod.UID = fmt.Sprint(pod.GenerateName, b.made), types.UID(fmt.Sprint("made", b.made))
		return false, nil, nil
	})
	b.d = New(Options{Namespace: "system", TypeLabel: instance, Patience: 10 * time.Minute}, factory.New(), lead, b)
	t.Cleanup(b.d.Close)
	return b
}

// learn shows a node of type big, and waits until the type is written down.
func (b *bench) learn() {
	b.t.Helper()
	b.see(nil, seen(b.t, "big", cards("old", 8)))
	b.eventually("the type is learned", func() bool {
		m, err := b.client.CoreV1().ConfigMaps("system").Get(b.t.Context(), ConfigMap, metav1.GetOptions{})
		return err == nil && m.Data["big"] != ""
	})
}

// see shows a session, and the same after a minute.
func (b *bench) see(waiting []Waiting, there ...Seen) {
	b.t.Helper()
	for _, later := range []int64{busyEvery, longSeconds} {
		b.now += later
		if !b.d.IsDue(b.now, len(waiting) > 0, len(there)) {
			b.t.Fatal("a session is not looked at")
		}
		b.d.See(b.client, b.now, &Look{Waiting: podsOf(waiting), Seen: there, Settings: settings()})
	}
}

// utilityPods waits until there are so many, and autoscalers would find them.
func (b *bench) utilityPods(n int) []corev1.Pod {
	b.t.Helper()
	var found []corev1.Pod
	b.eventually(fmt.Sprint(n, " utility pods"), func() bool {
		all, err := b.client.CoreV1().Pods("system").List(b.t.Context(), metav1.ListOptions{})
		if err != nil {
			b.t.Fatal(err)
		}
		found = all.Items
		return len(found) == n && !slices.ContainsFunc(found, func(p corev1.Pod) bool { return !isUnschedulable(&p) })
	})
	return found
}

func (b *bench) eventually(what string, isSo func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !isSo(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited for ever: %s", what)
		}
	}
}

func TestUtilityPodsAreMadeAndDeletedAsPodsWaitAndNodesCome(t *testing.T) {
	b := newBench(t, leader.Sole{})
	b.learn()
	waiting := pods(t, 3, 8, 0, 0, unseen)
	b.see(waiting)
	b.utilityPods(3)
	if got := b.d.Needed()["big"]; got != 3 {
		t.Errorf("%d nodes are needed", got)
	}
	const text = "The cluster's autoscaler is asked for nodes of type big"
	if got := b.d.Text(waiting[0].Object.UID, b.now); got != text {
		t.Errorf("told %q", got)
	}
	b.see(waiting, Seen{Node: nodeOf(t, "big", cards("new", 8)), IsJoining: true})
	b.utilityPods(2)
	b.see(nil)
	b.utilityPods(0)
	if got := b.d.Text(waiting[0].Object.UID, b.now); got != "" {
		t.Errorf("told %q when nobody waits", got)
	}
}

func TestANodeThatHasComeIsLookedAtAtOnce(t *testing.T) {
	b := newBench(t, leader.Sole{})
	b.learn()
	waiting := pods(t, 1, 8, 0, 0, unseen)
	b.see(waiting)
	b.utilityPods(1)
	if b.d.IsDue(b.now+1, true, 0) {
		t.Error("nothing has changed, and it is looked at again after a second")
	}
	if !b.d.IsDue(b.now+1, true, 1) {
		t.Error("a node has come, and it is not looked at")
	}
}

func TestAUtilityPodThatWasLeftWithoutItsConditionGetsIt(t *testing.T) {
	b := newBench(t, leader.Sole{})
	b.learn()
	b.see(pods(t, 1, 8, 0, 0, unseen))
	pod := b.utilityPods(1)[0]
	pod.Status.Conditions = nil
	if _, err := b.client.CoreV1().Pods("system").UpdateStatus(t.Context(), &pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.see(pods(t, 1, 8, 0, 0, unseen))
	if again := b.utilityPods(1)[0]; again.UID != pod.UID {
		t.Error("it was made anew")
	}
}

// away is a process that does not lead.
type away struct{}

func (away) Begin() (time.Time, func(), error) { return time.Time{}, nil, errors.New("another leads") }

func TestAProcessThatDoesNotLeadWritesNothing(t *testing.T) {
	b := newBench(t, away{})
	for range 5 {
		b.see(pods(t, 1, 8, 0, 0, unseen), seen(t, "big", cards("old", 8)))
	}
	if got := b.client.Actions(); len(got) > 0 {
		t.Errorf("calls %v", got)
	}
	if b.d.Awaits("p0", b.now) {
		t.Error("evictions wait for a node that nobody asks for")
	}
}

func TestProblemsOfNodeTypesAreToldOncePerChange(t *testing.T) {
	b := newBench(t, leader.Sole{})
	m, err := b.client.CoreV1().ConfigMaps("system").Get(t.Context(), ConfigMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.Data = map[string]string{"odd": "version: 7"}
	if _, err := b.client.CoreV1().ConfigMaps("system").Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.see(pods(t, 1, 8, 0, 0, unseen), seen(t, "big", cards("old", 8)))
		b.eventually("it is judged", func() bool { return b.d.Needed()["big"] == 1 })
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.told) != 1 || !strings.HasPrefix(b.told[0], "ConfigMap system/volcano-vgpu-node-types: NodeTypeDoubtful: node type odd: version: is 7, want 1") {
		t.Errorf("told %q", b.told)
	}
}

func TestEvictionsWaitForANodeAndNotForEver(t *testing.T) {
	b := newBench(t, leader.Sole{})
	if b.d.Awaits("p0", b.now) {
		t.Error("evictions wait before a type of node is known")
	}
	b.learn()
	b.eventually("the type is known", func() bool { return b.d.Awaits("p0", b.now) })
	for _, c := range []struct {
		after int64
		waits bool
	}{{0, true}, {judgeSeconds - 1, true}, {judgeSeconds, false}} {
		if got := b.d.Awaits("p0", b.now+c.after); got != c.waits {
			t.Errorf("%d s after a pod came that was not judged yet, evictions wait: %v", c.after, got)
		}
	}
	first := b.now
	b.see([]Waiting{pod(t, "p0", 8, 0, 0, unseen), pod(t, "huge", 9, 0, 0, unseen)})
	b.utilityPods(1)
	for _, c := range []struct {
		pod   types.UID
		after int64
		waits bool
	}{{"p0", 599, true}, {"p0", 600, false}, {"huge", 70, false}} {
		if got := b.d.Awaits(c.pod, first+c.after); got != c.waits {
			t.Errorf("%d s after %s came, evictions wait: %v", c.after, c.pod, got)
		}
	}
}

func TestWithoutANamespaceNothingIsDone(t *testing.T) {
	d := New(Options{}, factory.New(), leader.Sole{}, nil)
	if d.IsOn() || d.IsDue(0, true, 1) || d.Awaits("p", 0) || d.Needed() != nil || d.Text("p", 100) != "" {
		t.Error("something is done")
	}
	d.Close()
}
