// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/wire"
	"deviceshare/view/capture"
)

// cluster is a source that the test changes.
type cluster struct {
	mu      sync.Mutex
	state   *capture.State
	trouble string
	changed chan struct{}
}

func (c *cluster) State() *capture.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *cluster) Changed() <-chan struct{} { return c.changed }

func (c *cluster) Trouble() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trouble
}

func (c *cluster) become(s *capture.State) {
	c.mu.Lock()
	c.state = s
	c.mu.Unlock()
	c.changed <- struct{}{}
}

// hostile is what an attacker would like a browser to read as markup.
const hostile = `</script><img src=x onerror=alert(1)>`

// stateOf is a node with two devices, one of them broken, and pods that wait.
func stateOf(t *testing.T, pods int) *capture.State {
	t.Helper()
	well, broken := sharingtest.Device(0, "A100-40", sharing.HAMiCore), sharingtest.Device(1, "A100-40", sharing.MIG)
	broken.Healthy, broken.Reason, well.Model = false, hostile, hostile
	annotations, err := wire.NodeAnnotations(sharing.Inventory{Node: hostile, Devices: []sharing.Device{well, broken}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := &capture.State{Taken: time.Unix(1700000000, 0)}
	s.Add(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: hostile, Annotations: annotations},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{wire.ResourceNumber: resource.MustParse("20")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	})
	for i := range pods {
		s.Add(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("%d%s", i, hostile), UID: types.UID(fmt.Sprint(i))},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: hostile, Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{wire.ResourceNumber: resource.MustParse("3")}}}}},
			Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: hostile}}},
		})
	}
	s.Sort()
	return s
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestNoAnswerHoldsMarkupOfStrangers(t *testing.T) {
	h := New(Captured{stateOf(t, 12)}).Page()
	for _, path := range []string{"/data/overview", "/data/nodes", "/data/waiting", "/data/history", "/data/nodes?text=onerror"} {
		w := get(h, path)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" || strings.ContainsAny(w.Body.String(), "<>") {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
		if !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: no JSON", path)
		}
		if path != "/data/history" && !strings.Contains(w.Body.String(), "onerror") {
			t.Errorf("%s: the name is not there, so that nothing was tried: %s", path, w.Body)
		}
	}
}

func TestEveryAnswerForbidsTheBrowserAllThatThePageDoesNotNeed(t *testing.T) {
	s := New(Captured{stateOf(t, 1)})
	for path, code := range map[string]int{"/": 200, "/main.js": 200, "/page.css": 200, "/data/overview": 200, "/data/nodes?offset=x": 400, "/nothing": 404} {
		w := get(s.Page(), path)
		if w.Code != code {
			t.Errorf("%s: %d, want %d", path, w.Code, code)
		}
		p := w.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(p, "default-src 'none';") || strings.Contains(p, "unsafe") || strings.Contains(p, "*") || strings.Contains(p, "http") {
			t.Errorf("%s: the policy is %q", path, p)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, w.Header())
		}
	}
	if w := httptest.NewRecorder(); true {
		s.Page().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/data/overview", nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST: %d", w.Code)
		}
	}
}

func TestWhatCannotBeAskedIsRefusedWithAReason(t *testing.T) {
	h := New(Captured{stateOf(t, 1)}).Page()
	for path, want := range map[string]string{
		"nodes?offset=-1": "offset", "nodes?limit=many": "limit", "nodes?condition=odd": "odd", "waiting?offset=1.5": "offset", "history?after=now": "after",
		"nodes?text=" + strings.Repeat("x", longestText+1): "at most",
	} {
		if w := get(h, "/data/"+path); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	for path, most := range map[string]int{"nodes?limit=100000": mostCards, "waiting": mostWhys, "waiting?offset=20": 5, "waiting?offset=900": 0} {
		var got struct{ Nodes, Pods []any }
		w := get(New(Captured{stateOf(t, 25)}).Page(), "/data/"+path)
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Nodes)+len(got.Pods) > most || strings.HasPrefix(path, "waiting") && len(got.Pods) != most {
			t.Errorf("%s: %v, %d nodes and %d pods", path, err, len(got.Nodes), len(got.Pods))
		}
	}
}

// follow serves a source by a clock of the test.
func follow(t *testing.T, c *cluster, now clock.WithTicker) *Server {
	t.Helper()
	s := newServer(c, now)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Follow(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

func TestAViewerIsToldOfEachChangeAndSeesIt(t *testing.T) {
	c := &cluster{state: stateOf(t, 1), changed: make(chan struct{}, 1)}
	s := follow(t, c, clock.RealClock{})
	mux := http.NewServeMux()
	mux.Handle("/", s.Page())
	mux.Handle(EventsPath, s.Events())
	server := httptest.NewServer(mux)
	defer server.Close()
	answer, err := http.Get(server.URL + EventsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for version := 1; version <= 3; version++ {
		for want := fmt.Sprintf("data: %d", version); lines.Text() != want; {
			if !lines.Scan() {
				t.Fatalf("the stream ends before %q: %v", want, lines.Err())
			}
		}
		var o struct{ Version, Waiting int }
		if err := json.Unmarshal(get(s.Page(), "/data/overview").Body.Bytes(), &o); err != nil || o.Version != version || o.Waiting != version {
			t.Errorf("%v: got %+v, want version %d with as many pods that wait", err, o, version)
		}
		c.become(stateOf(t, version+1))
	}
}

func TestTheTimeLineKeepsAnHour(t *testing.T) {
	now := testclock.NewFakeClock(time.Unix(1700000000, 0))
	c := &cluster{state: stateOf(t, 3), changed: make(chan struct{}, 1)}
	s := newServer(c, now)
	const samples = keptSamples + 100
	for range samples - 1 { // one was taken at the start
		now.Step(sampleEvery)
		s.recordSample()
	}
	var got struct {
		Samples []Sample
	}
	read := func(path string) {
		t.Helper()
		got.Samples = nil
		if err := json.Unmarshal(get(s.Page(), path).Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
	}
	read("/data/history")
	last := now.Now().Unix()
	if n := len(got.Samples); n != keptSamples || got.Samples[n-1].At != last || last-got.Samples[0].At > 3600 || got.Samples[0].Waiting != 3 {
		t.Errorf("%d samples, from %+v", n, got.Samples[0])
	}
	read(fmt.Sprintf("/data/history?after=%d", last-2*int64(sampleEvery/time.Second)))
	if len(got.Samples) != 2 || got.Samples[1].At != last {
		t.Errorf("after the last but two come %+v", got.Samples)
	}
	if read(fmt.Sprintf("/data/history?after=%d", last)); len(got.Samples) != 0 {
		t.Errorf("after the last come %+v", got.Samples)
	}
}

func TestAStateThatMayBeOldIsSaidToBe(t *testing.T) {
	c := &cluster{state: stateOf(t, 0), changed: make(chan struct{}, 1), trouble: "list pods: refused"}
	if w := get(New(c).Page(), "/data/overview"); !strings.Contains(w.Body.String(), `"stale":"list pods: refused","live":true`) {
		t.Errorf("got %s", w.Body)
	}
	if w := get(New(Captured{stateOf(t, 0)}).Page(), "/data/overview"); !strings.Contains(w.Body.String(), `"live":false`) || strings.Contains(w.Body.String(), "stale") {
		t.Errorf("got %s", w.Body)
	}
}
