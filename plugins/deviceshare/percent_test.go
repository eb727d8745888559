// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"deviceshare/sharing/wire"
)

// hostile is what a format makes nonsense of.
const hostile = "100% of %d%s%!v(MISSING)%%"

// eventsOf returns the events that Volcano has made so far.
func (w *world) eventsOf() (events []string) {
	for {
		select {
		case e := <-w.cache.Recorder.(*record.FakeRecorder).Events:
			events = append(events, e)
		default:
			return events
		}
	}
}

// Volcano formats what it is told for events, and not for conditions: both must say the same.
func TestAPercentSignPassesThroughVolcano(t *testing.T) {
	pod := func(annotation, value string) *corev1.Pod {
		p := podOf("p", "g", asks{number: 1, memory: 1000, cores: 100})
		if annotation != "" {
			p.Annotations[annotation] = value
		}
		return p
	}
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		node  func(*corev1.Node)
		world func(*world)
		want  string
	}{
		"a limit of compute": {
			pod:   pod("", ""),
			world: func(w *world) { w.cache.AddQueueV1beta1(queueBelow(t, "default", "", "cores=20")) },
			want:  "uses 0 percent of 20 percent volcano.sh/vgpu-cores: 100 percent more is 80 percent too much",
		},
		"an annotation with mistakes": {pod: pod(wire.UserMode, hostile), want: "100\uff05 of"},
		"an inventory that cannot be read": {
			pod:  pod("", ""),
			node: func(n *corev1.Node) { n.Annotations[wire.NodeInventory] = `{"` + hostile },
		},
		"no settings": {
			pod: pod("", ""), want: "100\uff05 of",
			world: func(w *world) { w.store.settings.Store(nil); w.store.Withhold(hostile) },
		},
		"a bind that fails": {
			pod: pod("", ""), want: "100\uff05 of",
			world: func(w *world) {
				w.answerWith(func(string) (bool, error) { return false, errors.New(hostile) })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := nodeOf(t, devices("n1", 1, 10000))
			if c.node != nil {
				c.node(node)
			}
			other := podOf("q", "g", asks{number: 1, memory: 20000}) // so that the group is told of a pod
			w := newWorld(t, node, groupOf("g", 1), c.pod, other)
			if c.world != nil {
				c.world(w)
			}
			w.eventsOf()
			w.explained()
			w.eventually("the pod is told something", func() bool { return w.status.message("p") != "" })
			if _, bound := w.binding("p"); bound {
				w.eventually("the pod is told of the bind", func() bool { return strings.Contains(w.status.message("p"), "failed to bind") })
			}
			said, events := w.status.message("p"), strings.Join(w.eventsOf(), "\n")
			if !strings.Contains(said, c.want) {
				t.Errorf("the condition says %q, want it to say %q", said, c.want)
			}
			if !strings.Contains(events, "FailedScheduling "+said) {
				t.Errorf("the condition says %q, the events say\n%s", said, events)
			}
			for _, text := range []string{events, said, w.status.groups["g"]} {
				if strings.Contains(text, "(MISSING)") && !strings.Contains(text, "!v(MISSING)\uff05\uff05") || strings.Contains(text, "NOVERB") {
					t.Errorf("somebody is told %q", text)
				}
			}
		})
	}
}
