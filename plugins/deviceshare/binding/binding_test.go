// SPDX-License-Identifier: Apache-2.0

package binding

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/metrics"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/podstate"
	"deviceshare/plugins/leader"
	"deviceshare/sharing/wire"
)

// podOf is a pod without anything that binding does not read.
func podOf(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}}}
}

// bindingsOf returns the Bindings that were sent through a fake client.
func bindingsOf(client *fake.Clientset) []*corev1.Binding {
	var out []*corev1.Binding
	for _, a := range client.Actions() {
		if c, ok := a.(k8stesting.CreateAction); ok && a.GetSubresource() == "binding" {
			out = append(out, c.GetObject().(*corev1.Binding))
		}
	}
	return out
}

func TestTheBinderSendsWhatWasAssumedForThatNodeOnly(t *testing.T) {
	states := nodes.NewCluster(nil, nil).Pods()
	here, elsewhere, stopped, plain := podOf("here"), podOf("elsewhere"), podOf("stopped"), podOf("plain")
	states.Decide(nodes.Handover{Pod: here}, podstate.Decision{Node: "n1", Annotations: map[string]string{wire.PodPlacement: "planned"}})
	states.Decide(nodes.Handover{Pod: elsewhere}, podstate.Decision{Node: "n2", Annotations: map[string]string{wire.PodPlacement: "planned"}})
	states.Decide(nodes.Handover{Pod: stopped}, podstate.Decision{Node: "n1", Refusal: errors.New("no devices")})
	here.Annotations[wire.PodPlacement] = "stale"
	plain.Annotations[numaDecision] = "{}"

	client := fake.NewClientset()
	var tasks []*api.TaskInfo
	for _, p := range []*corev1.Pod{here, elsewhere, stopped, plain} {
		if _, err := client.CoreV1().Pods(p.Namespace).Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		task := api.NewTaskInfo(p)
		task.NodeName = "n1"
		tasks = append(tasks, task)
	}
	client.ClearActions()
	b := New(states, nil, nil, nobodyMustHaveDevices{}, leader.Sole{}, metrics.New())
	if failed := b.Bind(client, nil); len(failed) != 0 || len(client.Actions()) != 0 {
		t.Errorf("binding nothing failed with %v after %d calls", failed, len(client.Actions()))
	}
	failed := b.Bind(client, tasks)
	if len(failed) != 2 || failed["uid-elsewhere"] == "" || failed["uid-stopped"] == "" {
		t.Errorf("failed: %v", failed)
	}
	sent := map[string]map[string]string{}
	for _, a := range bindingsOf(client) {
		sent[a.Name] = a.Annotations
	}
	want := map[string]map[string]string{
		"here": {wire.PodPlacement: "planned"}, "plain": {numaDecision: "{}"},
	}
	if d := cmp.Diff(want, sent); d != "" {
		t.Errorf("sent:\n%s", d)
	}
	if got := states.State("uid-here").Phase(); got != podstate.Accepted {
		t.Errorf("the bind that was accepted counts as %v", got)
	}
}

// nobodyMustHaveDevices lets pods be bound without a placement.
type nobodyMustHaveDevices struct{}

func (nobodyMustHaveDevices) MustHaveDevices(*corev1.Pod) bool { return false }

// reign is a leadership that lasts for some binds.
type reign struct{ binds, ended int }

func (r *reign) Begin() (until time.Time, done func(), err error) {
	if r.binds--; r.binds < 0 {
		return time.Time{}, nil, errors.New("another one leads")
	}
	return time.Now().Add(time.Hour), func() { r.ended++ }, nil
}

func TestPodsAreBoundByTheLeaderOnly(t *testing.T) {
	states := nodes.NewCluster(nil, nil).Pods()
	first, second := podOf("first"), podOf("second")
	client := fake.NewClientset(first, second)
	var tasks []*api.TaskInfo
	for _, p := range []*corev1.Pod{first, second} {
		states.Decide(nodes.Handover{Pod: p}, podstate.Decision{Node: "n1", Annotations: map[string]string{wire.PodPlacement: "planned"}})
		task := api.NewTaskInfo(p)
		task.NodeName = "n1"
		tasks = append(tasks, task)
	}
	lead := &reign{binds: 1}
	b := New(states, nil, nil, nobodyMustHaveDevices{}, lead, metrics.New())
	if failed := b.Bind(client, tasks); len(failed) != 1 || !strings.Contains(failed["uid-second"], "another one leads") {
		t.Errorf("failed: %v", failed)
	}
	if sent := bindingsOf(client); len(sent) != 1 || sent[0].Name != "first" || lead.ended != 1 {
		t.Errorf("sent %v, %d binds ended", sent, lead.ended)
	}
	if got := states.State("uid-second").Phase(); got != podstate.Decided {
		t.Errorf("what was not sent is %v", got)
	}
}

// Volcano binds all pods of a gang at the same time. An API server that is asked for too much at
// once answers 429, and whoever gets that waits.
func TestAGangIsBoundAFewPodsAtATime(t *testing.T) {
	const pods = 5 * bindsAtOnce
	var underWay, most, bound atomic.Int64
	var open sync.Once
	full := make(chan struct{}) // closed when as many calls are under way as may be
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := underWay.Add(1)
		defer underWay.Add(-1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
		}
		if now >= bindsAtOnce {
			open.Do(func() { close(full) })
		}
		<-full
		bound.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	b := New(nodes.NewCluster(nil, nil).Pods(), nil, nil, nobodyMustHaveDevices{}, leader.Sole{}, metrics.New())
	var calls sync.WaitGroup
	for i := range pods {
		task := api.NewTaskInfo(podOf(fmt.Sprint("p", i)))
		task.NodeName = "n1"
		calls.Go(func() {
			if failed := b.Bind(client, []*api.TaskInfo{task}); len(failed) > 0 {
				t.Errorf("failed: %v", failed)
			}
		})
	}
	calls.Wait()
	if bound.Load() != pods || most.Load() != bindsAtOnce {
		t.Errorf("%d of %d pods were bound, %d at a time, want %d", bound.Load(), pods, most.Load(), bindsAtOnce)
	}
}
