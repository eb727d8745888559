// SPDX-License-Identifier: Apache-2.0

package live_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"deviceshare/config"
	"deviceshare/config/live"
	"deviceshare/sharing"
)

// device makes the cluster-wide ConfigMap. The fake cluster does not count
// versions, so the test does.
func device(namespace, version, text string) *corev1.ConfigMap {
	return object(namespace, config.DeviceName, version, config.DeviceKey, text)
}

func node(version, text string) *corev1.ConfigMap {
	return object("kube-system", config.NodeName, version, config.NodeKey, text)
}

func object(namespace, name, version, key, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: version},
		Data:       map[string]string{key: text},
	}
}

func splits(n string) string { return "nvidia: {deviceSplitCount: " + n + "}" }

// cluster is a fake cluster with a watcher that runs on it.
type cluster struct {
	t        *testing.T
	client   *fake.Clientset
	watcher  *live.Watcher
	changes  chan live.Value
	problems chan live.Report
	stop     func()
}

func start(t *testing.T, client *fake.Clientset) *cluster { return startWith(t, client, nil) }

// memory is what processes on one machine keep for each other.
type memory map[string]live.Kept

func (m memory) Keep(name string, last live.Kept) { m[name] = last }

func (m memory) Recall(name string) (live.Kept, bool) {
	last, ok := m[name]
	return last, ok
}

// startWith is a process that keeps what is good in a memory, if there is one.
func startWith(t *testing.T, client *fake.Clientset, m memory) *cluster {
	c := &cluster{t: t, client: client, changes: make(chan live.Value, 10), problems: make(chan live.Report, 10)}
	o := live.Options{
		Client:  client,
		Changed: func(v live.Value) { c.changes <- v },
		Problem: func(r live.Report) { c.problems <- r },
	}
	if m != nil {
		o.Store = m
	}
	c.watcher = live.New(o)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.watcher.Run(ctx) }()
	c.stop = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(c.stop)
	waiting, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if err := c.watcher.Wait(waiting); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) update(m *corev1.ConfigMap) {
	c.t.Helper()
	if _, err := c.client.CoreV1().ConfigMaps(m.Namespace).Update(context.Background(), m, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func next[T any](t *testing.T, from chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(10 * time.Minute):
		t.Fatal("nothing was told")
		panic("not reached")
	}
}

func none[T any](t *testing.T, from chan T) {
	t.Helper()
	select {
	case v := <-from:
		t.Errorf("told without need: %+v", v)
	default:
	}
}

func TestWithoutConfigMapsTheDefaultsHold(t *testing.T) {
	c := start(t, fake.NewClientset())
	if got := c.watcher.Current().Device.Hash(); got != config.DefaultDevice().Hash() {
		t.Errorf("got hash %s", got)
	}
	none(t, c.changes)
	none(t, c.problems)
}

func TestAnEditTakesEffectWithoutARestart(t *testing.T) {
	c := start(t, fake.NewClientset(device("kube-system", "1", splits("4")), node("1", `{"nodeconfig":[]}`)))
	if v := next(t, c.changes); v.Device.SplitCount != 4 || c.watcher.Current().Device.SplitCount != 4 {
		t.Errorf("got %d", v.Device.SplitCount)
	}
	c.update(device("kube-system", "2", splits("6")))
	if v := next(t, c.changes); v.Device.SplitCount != 6 || v.DeviceFrom.Version != "2" {
		t.Errorf("got %d from %+v", v.Device.SplitCount, v.DeviceFrom)
	}
	c.update(node("2", `{"nodeconfig":[{"name":"n1","operatingmode":"mig"}]}`))
	if v := next(t, c.changes); v.Node.For("n1").Mode != sharing.MIG || v.Device.SplitCount != 6 {
		t.Errorf("got %+v", v.Node)
	}
}

func TestAWrongEditIsReportedOnceAndTheLastGoodValueStays(t *testing.T) {
	c := start(t, fake.NewClientset(device("kube-system", "1", splits("4"))))
	next(t, c.changes)
	c.update(device("kube-system", "2", "nvidia: {deviceSplitCount: -1, gpuMemoryFactor: big}"))
	r := next(t, c.problems)
	if len(r.Problems) != 2 || r.Source.Version != "2" || r.Source.Name != config.DeviceName {
		t.Errorf("got %+v", r)
	}
	if c.watcher.Current().Device.SplitCount != 4 {
		t.Errorf("got %d", c.watcher.Current().Device.SplitCount)
	}
	// Another object changes: the wrong one is not reported again.
	if _, err := c.client.CoreV1().ConfigMaps("kube-system").Create(context.Background(),
		node("1", `{"nodeconfig":[{"name":"n1","devicesplitcount":3}]}`), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	next(t, c.changes)
	none(t, c.problems)
	c.update(device("kube-system", "3", splits("5")))
	if v := next(t, c.changes); v.Device.SplitCount != 5 {
		t.Errorf("got %d", v.Device.SplitCount)
	}
}

func TestAProblemAtTheStartIsToldApartFromDefaultsThatAreMeant(t *testing.T) {
	c := start(t, fake.NewClientset(node("1", `{"nodeconfig":[{"name":"n1","operatingmode":"MIG"}]}`)))
	next(t, c.problems)
	if v := next(t, c.changes); !v.NodeUnread || v.DeviceUnread || !c.watcher.Current().NodeUnread {
		t.Errorf("got %+v", v)
	}
	c.update(node("2", `{"nodeconfig":[{"name":"n1","operatingmode":"mig"}]}`))
	if v := next(t, c.changes); v.NodeUnread || v.Node.For("n1").Mode != sharing.MIG {
		t.Errorf("got %+v", v)
	}
	c.update(node("3", `{"nodeconfig":[{"name":"n1","operatingmode":"MIG"}]}`))
	next(t, c.problems)
	if v := c.watcher.Current(); v.NodeUnread || v.Node.For("n1").Mode != sharing.MIG {
		t.Errorf("got %+v", v)
	}
}

func TestKubeSystemCountsBeforeVolcanoSystem(t *testing.T) {
	c := start(t, fake.NewClientset(device("volcano-system", "1", splits("7")), device("kube-system", "1", splits("4"))))
	if v := next(t, c.changes); v.Device.SplitCount != 4 || v.DeviceFrom.Namespace != "kube-system" {
		t.Errorf("got %d from %+v", v.Device.SplitCount, v.DeviceFrom)
	}
	if err := c.client.CoreV1().ConfigMaps("kube-system").Delete(context.Background(), config.DeviceName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if v := next(t, c.changes); v.Device.SplitCount != 7 || v.DeviceFrom.Namespace != "volcano-system" {
		t.Errorf("got %d from %+v", v.Device.SplitCount, v.DeviceFrom)
	}
}

func TestADeletedConfigMapStaysInForceAndIsReported(t *testing.T) {
	c := start(t, fake.NewClientset(device("kube-system", "1", splits("4"))))
	next(t, c.changes)
	if err := c.client.CoreV1().ConfigMaps("kube-system").Delete(context.Background(), config.DeviceName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if r := next(t, c.problems); !strings.Contains(r.Problems[0].Message, "deleted") {
		t.Errorf("got %+v", r)
	}
	if c.watcher.Current().Device.SplitCount != 4 {
		t.Errorf("got %d", c.watcher.Current().Device.SplitCount)
	}
}

func TestAConfigMapWithoutItsKeyIsReported(t *testing.T) {
	c := start(t, fake.NewClientset(object("kube-system", config.DeviceName, "1", "config.yaml", splits("4"))))
	if r := next(t, c.problems); !strings.Contains(r.Problems[0].Message, config.DeviceKey) {
		t.Errorf("got %+v", r)
	}
	if v := next(t, c.changes); !v.DeviceUnread {
		t.Errorf("got %+v", v.DeviceFrom)
	}
	if err := c.client.CoreV1().ConfigMaps("kube-system").Delete(context.Background(), config.DeviceName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if v := next(t, c.changes); v.DeviceUnread || v.Device.Hash() != config.DefaultDevice().Hash() {
		t.Errorf("got %+v", v.DeviceFrom)
	}
}

func TestOtherConfigMapsDoNotMatter(t *testing.T) {
	c := start(t, fake.NewClientset(object("kube-system", "other", "1", config.DeviceKey, "nonsense")))
	none(t, c.problems)
	none(t, c.changes)
	if c.watcher.Current().DeviceFrom != (live.Source{}) {
		t.Errorf("got %+v", c.watcher.Current().DeviceFrom)
	}
}

func TestANamespaceThatMayNotBeReadHidesNothingBeforeItAndIsReported(t *testing.T) {
	client := fake.NewClientset(device("kube-system", "1", splits("4")))
	forbid(client, "volcano-system")
	c := start(t, client)
	if v := next(t, c.changes); v.Device.SplitCount != 4 {
		t.Errorf("got %d", v.Device.SplitCount)
	}
	if r := next(t, c.problems); r.Source.Namespace != "volcano-system" || !strings.Contains(r.Problems[0].Message, "cannot be read") {
		t.Errorf("got %+v", r)
	}
}

func TestWhatMayNotBeReadIsUnreadAndNotAbsent(t *testing.T) {
	for name, exists := range map[string]bool{"there is one": true, "there is none": false} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{device("volcano-system", "1", splits("7"))}
			if exists {
				objects = append(objects, device("kube-system", "1", splits("4")))
			}
			client := fake.NewClientset(objects...)
			refused := forbid(client, "kube-system")
			c := start(t, client)
			if v := next(t, c.changes); !v.DeviceUnread || !v.NodeUnread || v.Device.Hash() != config.DefaultDevice().Hash() {
				t.Errorf("got %+v", v)
			}
			refused.Store(false)
			want := int64(7)
			if exists {
				want = 4
			}
			for v := next(t, c.changes); ; v = next(t, c.changes) {
				if !v.DeviceUnread && !v.NodeUnread {
					if v.Device.SplitCount != want {
						t.Errorf("%d from %+v", v.Device.SplitCount, v.DeviceFrom)
					}
					return
				}
			}
		})
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	w := live.New(live.Options{Client: fake.NewClientset()})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.Wait(ctx); err == nil {
		t.Error("it waited for a watcher that does not run")
	}
	if w.Current().Device.Hash() != config.DefaultDevice().Hash() {
		t.Error("the defaults do not hold before it runs")
	}
}
