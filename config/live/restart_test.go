// SPDX-License-Identifier: Apache-2.0

package live_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"deviceshare/config"
	"deviceshare/config/live"
	"deviceshare/sharing"
)

const (
	goodText   = `{"nodeconfig":[{"name":"n1","operatingmode":"mig"}]}`
	brokenText = `{"nodeconfig":[{"name":"n1","operatingmode":"MIG"}]}`
)

// forbid refuses every look at ConfigMaps of these namespaces, or of all if it names
// none, until the flag is cleared.
func forbid(client *fake.Clientset, namespaces ...string) *atomic.Bool {
	var refused atomic.Bool
	refused.Store(true)
	client.PrependReactor("list", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if !refused.Load() || len(namespaces) > 0 && !slices.Contains(namespaces, a.GetNamespace()) {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil)
	})
	return &refused
}

// What a process finds at its start, and what one before it kept.
func TestWhatIsInForceAfterARestart(t *testing.T) {
	text := func(s string) *corev1.ConfigMap { return node("7", s) }
	kept := live.Kept{Source: live.Source{Namespace: "kube-system", Name: config.NodeName, Version: "7"}, Text: goodText}
	for name, c := range map[string]struct {
		there     *corev1.ConfigMap
		forbidden bool
		memory    memory
		unread    bool
		mode      sharing.Mode
		keeps     string
	}{
		"a good one counts before what was kept":        {there: text(`{"nodeconfig":[]}`), memory: memory{config.NodeName: kept}, keeps: `{"nodeconfig":[]}`},
		"a broken one, and a good one was kept":         {there: text(brokenText), memory: memory{config.NodeName: kept}, mode: sharing.MIG, keeps: goodText},
		"a broken one, and nothing was kept":            {there: text(brokenText), memory: memory{}, unread: true},
		"a broken one, and nobody keeps anything":       {there: text(brokenText), unread: true},
		"a broken one, and there was none before":       {there: text(brokenText), memory: memory{config.NodeName: {}}},
		"a broken one, and what was kept is broken too": {there: text(brokenText), memory: memory{config.NodeName: {Source: kept.Source, Text: brokenText}}, unread: true, keeps: brokenText},
		"one without the key":                           {there: object("kube-system", config.NodeName, "7", "x", goodText), memory: memory{config.NodeName: kept}, mode: sharing.MIG, keeps: goodText},
		"one that may not be read":                      {there: text(goodText), forbidden: true, memory: memory{config.NodeName: kept}, mode: sharing.MIG, keeps: goodText},
		"nor may it be read, and nothing was kept":      {there: text(goodText), forbidden: true, memory: memory{}, unread: true},
		"none, so the defaults are meant":               {memory: memory{config.NodeName: kept}},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			if c.there != nil {
				client = fake.NewClientset(c.there)
			}
			if c.forbidden {
				forbid(client)
			}
			started := startWith(t, client, c.memory)
			started.stop()
			v := started.watcher.Current()
			if v.NodeUnread != c.unread || v.Node.For("n1").Mode != c.mode {
				t.Errorf("unread %v, mode %q; want %v, %q", v.NodeUnread, v.Node.For("n1").Mode, c.unread, c.mode)
			}
			if got := c.memory[config.NodeName].Text; got != c.keeps {
				t.Errorf("it keeps %q, want %q", got, c.keeps)
			}
		})
	}
}

func TestAConfigMapThatMayNotBeReadIsUnreadUntilItMay(t *testing.T) {
	client := fake.NewClientset()
	refused := forbid(client)
	c := start(t, client)
	if v := next(t, c.changes); !v.NodeUnread || !v.DeviceUnread {
		t.Errorf("got %+v", v)
	}
	refused.Store(false) // and there is none
	deadline := time.Now().Add(10 * time.Minute)
	for v := c.watcher.Current(); v.NodeUnread || v.DeviceUnread; v = c.watcher.Current() {
		if time.Now().After(deadline) {
			t.Fatal("it is still not known that there is none")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestABrokenFirstVersionLeavesTheDefaultsThatWereMeantInForce(t *testing.T) {
	m := memory{}
	c := startWith(t, fake.NewClientset(), m)
	if _, err := c.client.CoreV1().ConfigMaps("kube-system").Create(context.Background(), node("1", brokenText), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	next(t, c.problems)
	if v := c.watcher.Current(); v.NodeUnread {
		t.Errorf("got %+v", v)
	}
	c.stop()
	if v := startWith(t, c.client, m).watcher.Current(); v.NodeUnread {
		t.Errorf("after a restart: %+v", v)
	}
}

func TestARestartDoesNotBreakThePromiseOfTheLastGoodText(t *testing.T) {
	m := memory{}
	c := startWith(t, fake.NewClientset(node("1", goodText)), m)
	c.update(node("2", brokenText))
	next(t, c.problems)
	c.stop()
	again := startWith(t, c.client, m)
	if v := again.watcher.Current(); v.NodeUnread || v.Node.For("n1").Mode != sharing.MIG {
		t.Errorf("after a restart: %+v", v)
	}
	next(t, again.problems)
	again.update(node("3", `{"nodeconfig":[{"name":"n1","operatingmode":"mps"}]}`))
	for next(t, again.changes).Node.For("n1").Mode != sharing.MPS {
	}
	again.update(node("4", brokenText))
	next(t, again.problems)
	again.stop()
	if v := startWith(t, c.client, m).watcher.Current(); v.Node.For("n1").Mode != sharing.MPS {
		t.Errorf("after another: %+v", v)
	}
}
