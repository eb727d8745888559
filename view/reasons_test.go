// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing/factory"
	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// The node's devices are free, and something else keeps the pod off the node.
func TestANodeThatThePodMayNotUseIsNotCalledAPlaceForIt(t *testing.T) {
	taint := corev1.Taint{Key: "team", Value: "blue", Effect: corev1.TaintEffectNoSchedule}
	for name, c := range map[string]struct {
		node func(*corev1.Node)
		pod  func(*corev1.Pod)
		want string
	}{
		"a cordoned node": {func(n *corev1.Node) { n.Spec.Unschedulable = true }, func(*corev1.Pod) {}, "were unschedulable"},
		"a taint":         {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint} }, func(*corev1.Pod) {}, "untolerated taint {team: blue}"},
		"a node selector": {func(*corev1.Node) {}, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} }, "didn't match Pod's node affinity/selector"},
		"a node affinity": {func(*corev1.Node) {}, func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "gpus", Operator: corev1.NodeSelectorOpGt, Values: []string{"4"}},
				}}},
			}}}
		}, "didn't match Pod's node affinity/selector"},
		"a taint that is tolerated": {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint} },
			func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }, "is about to be placed"},
		"a selector that matches": {func(n *corev1.Node) { n.Labels = map[string]string{"zone": "a"} },
			func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} }, "is about to be placed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &capture.State{Scheduling: &capture.Scheduling{}}
			node, pod := nodeOf(t, "node", 2), podOf("worker", 1)
			c.node(node)
			c.pod(pod)
			for _, o := range []any{node, pod, gangOf(1)} {
				s.Add(o)
			}
			if w := whyOf(t, s, "worker"); !strings.Contains(w.Answer, c.want) || w.Nodes[0].Fits != strings.Contains(c.want, "about") {
				t.Errorf("got %q, want it to say %q", w.Answer, c.want)
			}
			hashed := view.Read(s.Hash([]byte("salt")), factory.New()).Status().Longest
			if fits := strings.Contains(c.want, "about"); len(hashed) != 1 || strings.Contains(hashed[0].Answer, "about") != fits {
				t.Errorf("with hashed names: %+v", hashed)
			}
		})
	}
}

// A pod that may run as root gets no device in mode mps: people read why, and programs the code.
func TestReasonsAreSaidInWordsWithWhatHelps(t *testing.T) {
	const clause, advice = "refusing containers that run as root (RootUser)", "set securityContext.runAsUser to a user other than 0"
	s := stateOf(t, gangOf(1))
	for _, n := range s.Nodes {
		n.Annotations[wire.NodeInventory] = strings.ReplaceAll(n.Annotations[wire.NodeInventory], `"hami-core"`, `"mps","noRoot":true`)
		delete(n.Annotations, wire.NodeRegister)
	}
	s.Add(podOf("root", 1))
	w := whyOf(t, s, "root")
	status := view.Read(s, factory.New()).Status()
	for where, text := range map[string]string{
		"why": w.Text(view.Paint{}, false), "the answer": w.Answer, "status": status.Text(view.Paint{}),
	} {
		if !strings.Contains(text, clause) || !strings.Contains(text, advice) {
			t.Errorf("%s does not say why, or what helps:\n%s", where, text)
		}
	}
	if text := w.Text(view.Paint{}, false); !strings.Contains(text, "devices 0, 1 (mps): "+clause) {
		t.Errorf("it does not say it of the devices:\n%s", text)
	}
	page, _ := json.Marshal(w)
	var read struct {
		Nodes []struct {
			Devices []struct{ Reason, Text, Help, Mode string }
		}
	}
	if err := json.Unmarshal(page, &read); err != nil {
		t.Fatal(err)
	}
	if d := read.Nodes[0].Devices[1]; d.Reason != "RootUser" || d.Text != clause || d.Help != advice || d.Mode != "mps" {
		t.Errorf("a program reads %+v", d)
	}
}
