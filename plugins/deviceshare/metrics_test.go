// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/plugins/deviceshare/waiting"
	"deviceshare/plugins/deviceshare/waiting/news"
	"deviceshare/sharing"
)

// metrics returns what the store's metrics say: values by names with labels. Of a histogram it is
// how much was counted, and the sum under the name with "_sum".
func (w *world) metrics() map[string]float64 {
	w.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.store)
	families, err := registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		w.t.Errorf("names of metrics: %v, %v", problems, err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			if h := m.GetHistogram(); h != nil {
				out[name], out[name+"_sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
			}
		}
	}
	return out
}

// queueOf returns the queue of a pod's group.
func (w *world) queueOf(pod string) string {
	w.t.Helper()
	w.cache.Mutex.Lock()
	defer w.cache.Mutex.Unlock()
	for _, job := range w.cache.Jobs {
		for _, task := range job.Tasks {
			if task.Name == pod {
				return string(job.Queue)
			}
		}
	}
	w.t.Fatalf("no pod %s", pod)
	return ""
}

func TestAPodThatIsBoundCountsWithTheTimeItWaited(t *testing.T) {
	waited := podOf("p", "g", asks{number: 1, memory: 1000})
	waited.CreationTimestamp = metav1.NewTime(time.Now().Add(-100 * time.Second))
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), waited, groupOf("plain", 1), podOf("other", "plain", asks{}))
	w.schedule()
	w.settled()
	w.eventually("both are bound", func() bool { return w.bindCalls() == 2 })
	got := w.metrics()
	if n, sum := got["deviceshare_placement_wait_seconds"], got["deviceshare_placement_wait_seconds_sum"]; n != 1 || sum < 100 || sum > 200 {
		t.Errorf("%v pods with devices waited %v s in all, want one and about 100 s", n, sum)
	}
}

func TestAPodThatIsNotBoundDoesNotCountAsPlaced(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 1000}))
	w.answerWith(func(string) (bool, error) { return false, errors.New("no such node") })
	w.schedule()
	w.bound("p")
	w.tierOff()
	w.settled()
	if n := w.metrics()["deviceshare_placement_wait_seconds"]; n != 0 {
		t.Errorf("%v pods count as placed", n)
	}
}

func TestPodsThatWaitCountByQueueWithTheMemoryTheyAskFor(t *testing.T) {
	gated := podOf("gated", "h", asks{number: 1, memory: 500})
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "later"}}
	g := groupOf("g", 1)
	g.Spec.Queue = "narrow"
	w := newWorld(t, small(t, "n1", 1), podOf("a", "g", asks{number: 2, memory: 9000}), podOf("b", "g", asks{number: 1, memory: 20000}),
		groupOf("h", 1), gated, groupOf("plain", 1), podOf("plain", "plain", asks{}))
	w.queue("narrow", schedulingv1beta1.QueueStateOpen, 0)
	w.create(g)
	w.explained()
	got := w.metrics()
	for series, want := range map[string]float64{
		`deviceshare_waiting_pods{queue="narrow",reason="nodes"}`:            2,
		`deviceshare_waiting_memory_bytes{queue="narrow",reason="nodes"}`:    float64(sharing.MiBs(2*9000 + 20000)),
		`deviceshare_waiting_pods{queue="narrow",reason="gate"}`:             0,
		`deviceshare_waiting_pods{queue="default",reason="gate"}`:            1,
		`deviceshare_waiting_memory_bytes{queue="default",reason="gate"}`:    float64(sharing.MiBs(500)),
		`deviceshare_waiting_pods{queue="default",reason="nodes"}`:           0,
		`deviceshare_waiting_memory_bytes{queue="default",reason="enqueue"}`: 0,
	} {
		if is, there := got[series]; !there || is != want {
			t.Errorf("%s is %v (%t), want %v", series, is, there, want)
		}
	}
	if n := countSeries(got, "deviceshare_waiting_pods{"); n != 2*int(news.Causes) {
		t.Errorf("%d series of two queues, want one for each cause: %v", n, got)
	}
}

// The scheduler's configuration is read again in each session: what the plugin knew last must not
// stand in graphs for ever.
func TestAPluginThatIsTakenOutShowsNoGaugesOfItsPast(t *testing.T) {
	for name, turnOff := range map[string]func(*world){
		"removed from the configuration": func(w *world) { w.tiers = w.tiers[:1] },
		"turned off by an argument":      func(w *world) { w.args[argEnabled] = false },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("g", 1), podOf("p", "g", asks{number: 30, memory: 1000}))
			w.explained()
			before := w.metrics()
			if before["deviceshare_plugin_enabled"] != 1 || countSeries(before, "deviceshare_waiting_pods{") == 0 {
				t.Fatalf("the metrics are %v", before)
			}
			tiers := w.tiers
			turnOff(w)
			w.explained()
			after := w.metrics()
			if enabled, there := after["deviceshare_plugin_enabled"]; !there || enabled != 0 {
				t.Errorf("the plugin is shown as enabled: %v (%t)", enabled, there)
			}
			for _, gone := range []string{"deviceshare_waiting", "deviceshare_device_", "deviceshare_assumed", "deviceshare_blocked", "deviceshare_free", "deviceshare_argument"} {
				if n := countSeries(after, gone); n > 0 {
					t.Errorf("%d series of %s are left", n, gone)
				}
			}
			w.tiers = tiers
			delete(w.args, argEnabled)
			w.explained()
			again := w.metrics()
			for series := range before {
				if _, there := again[series]; !there {
					t.Errorf("turned on again, the plugin does not show %s", series)
				}
			}
		})
	}
}

func countSeries(all map[string]float64, prefix string) (n int) {
	for name := range all {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}

func TestTheMemoryAPodAsksForIsThatOfItsContainersTogetherOrOfOneBefore(t *testing.T) {
	of := func(kind sharing.ContainerKind, count int, memory sharing.Memory) sharing.Request {
		return sharing.Request{Kind: kind, Count: count, Memory: memory}
	}
	largest := sharing.MiBs(1000)
	for says, c := range map[string]struct {
		requests []sharing.Request
		want     sharing.Bytes
	}{
		"two containers":              {[]sharing.Request{of(sharing.App, 2, sharing.AbsoluteMemory(100)), of(sharing.App, 1, sharing.AbsoluteMemory(50))}, 250},
		"an init container asks more": {[]sharing.Request{of(sharing.Init, 1, sharing.AbsoluteMemory(900)), of(sharing.App, 1, sharing.AbsoluteMemory(50))}, 900},
		"half a device":               {[]sharing.Request{of(sharing.App, 1, sharing.PercentMemory(50))}, largest / 2},
		"more than anybody can count": {[]sharing.Request{of(sharing.App, 1<<40, sharing.AbsoluteMemory(1<<40))}, sharing.MaxBytes},
		"nothing":                     {nil, 0},
	} {
		if got := waiting.MemoryOf(&sharing.PodRequest{Requests: c.requests}, largest); got != c.want {
			t.Errorf("%s: %v, want %v", says, got, c.want)
		}
	}
}

func TestEveryCauseHasItsName(t *testing.T) {
	seen := map[string]bool{"": true, news.Causes.String(): true}
	for cause := range news.Causes {
		if name := cause.String(); seen[name] {
			t.Errorf("cause %d is called %q", cause, name)
		} else {
			seen[name] = true
		}
	}
}

// The lesson is 60 pods that ask for a whole device each: a third of a device is of no use to them.
func TestWhatIsFreeAndOfUseToThePodsThatArrivedLast(t *testing.T) {
	objects := append([]runtime.Object{}, lesson(t)...)
	w := newWorld(t, append(objects, withCPU(podOf("p", "g", asks{number: 1, cores: 100}), 8))...)
	if got := w.metrics(); countSeries(got, "deviceshare_free_") != 0 {
		t.Errorf("nothing has arrived, and told is %v", got)
	}
	w.scores("p")
	before := w.metrics()
	free, ratio := before["deviceshare_free_devices"], before["deviceshare_free_usable_ratio"]
	if free < 2 || ratio != 1 {
		t.Errorf("%v devices are free and %v of them usable, want all", free, ratio)
	}
	w.create(runningOn(t, podOf("small", "g", asks{number: 1, memory: 1000}), "n1", share("GPU-n1-0", 1000)))
	w.scores("p")
	after := w.metrics()
	left := after["deviceshare_free_devices"]
	if want := free - 0.1; left < want-1e-9 || left > want+1e-9 {
		t.Errorf("%v devices are free, want %v", left, want)
	}
	if got, want := after["deviceshare_free_usable_ratio"], (free-1)/left; got < want-1e-9 || got > want+1e-9 {
		t.Errorf("%v of what is free is usable, want %v", got, want)
	}
}
