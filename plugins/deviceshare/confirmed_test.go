// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	clientcache "k8s.io/client-go/tools/cache"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/podstate"
	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/wire"
)

// scene is a store that sees one snapshot after the other.
type scene struct {
	t *testing.T
	noObjects
	store *Store
	api   clientcache.Indexer // the pods of the API server
}

func newScene(t *testing.T) *scene {
	c := &scene{t: t, api: clientcache.NewIndexer(clientcache.MetaNamespaceKeyFunc, clientcache.Indexers{})}
	c.store = NewStore(Options{Backends: factory.New(), Report: &reportRecorder{}})
	c.store.objects = c
	return c
}

// podsOf makes the scene the API server of its sessions.
func (c *scene) podsOf(*framework.Session) corelisters.PodLister {
	return corelisters.NewPodLister(c.api)
}

// exists puts pods into the API server.
func (c *scene) exists(pods ...*corev1.Pod) {
	c.t.Helper()
	for _, p := range pods {
		if err := c.api.Add(p); err != nil {
			c.t.Fatal(err)
		}
	}
}

// see shows a snapshot and returns the plugin of its session.
func (c *scene) see(infos ...*api.NodeInfo) *Plugin {
	p := c.store.Build(framework.Arguments{}).(*Plugin)
	ssn, _ := sessionOf(infos...)
	p.joinSession(ssn)
	return p
}

// used is the memory in use of the first device of n1, in MiB.
func (c *scene) used() sharing.Bytes {
	return c.store.cluster.Nodes()["n1"].Ledger.Views()[0].UsedMemory()
}

// reports counts reports with a reason.
func (c *scene) reports(reason string) (n int) {
	for _, said := range c.store.report.(*reportRecorder).all() {
		if strings.Contains(said, reason) {
			n++
		}
	}
	return n
}

// patched returns the pod with other annotations, as another object; an empty value
// removes.
func patched(pod *corev1.Pod, pairs ...string) *corev1.Pod {
	out := pod.DeepCopy()
	for i := 0; i < len(pairs); i += 2 {
		out.Annotations[pairs[i]] = pairs[i+1]
		if pairs[i+1] == "" {
			delete(out.Annotations, pairs[i])
		}
	}
	return out
}

func TestAPlacementThatIsEditedAfterThePodWasBoundIsReportedAndNotBelieved(t *testing.T) {
	smaller := runningOn(t, podOf("p", "g", asks{number: 1, memory: 3000}), "n1", share("GPU-n1-0", 1)).Annotations
	for name, edit := range map[string][]string{
		"to hold nothing":       {wire.PodPlacement, `{"version":1,"node":"n1","containers":[]}`, wire.PodAssigned, ""},
		"to hold less":          {wire.PodPlacement, smaller[wire.PodPlacement], wire.PodAssigned, smaller[wire.PodAssigned]},
		"to be unreadable":      {wire.PodPlacement, "{"},
		"to be on another node": {wire.PodNode, "x"},
		"removed":               {wire.PodPlacement, "", wire.PodAssigned, "", wire.PodNode, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, node := newScene(t), nodeOf(t, devices("n1", 2, 10000))
			pod := runningOn(t, podOf("p", "g", asks{number: 1, memory: 3000}), "n1", share("GPU-n1-0", 3000))
			c.exists(pod)
			c.see(infoOf(node, []*corev1.Pod{pod}))
			edited := patched(pod, edit...)
			n1 := infoOf(node, []*corev1.Pod{edited})
			p := c.see(n1)
			if got := c.used(); got != sharing.MiBs(3000) {
				t.Errorf("%v used", got)
			}
			if err := try(p, n1); err != nil {
				t.Errorf("the rest of the node suffers: %v", err)
			}
			// Seen again, by another object, after the node was away.
			c.see(infoOf(nodeOf(t, devices("n2", 1, 10000)), nil))
			c.see(infoOf(node.DeepCopy(), []*corev1.Pod{edited.DeepCopy()}))
			if got := c.used(); got != sharing.MiBs(3000) {
				t.Errorf("%v used after the node was away", got)
			}
			if c.reports("Pod p: DevicePlacementEdited") == 0 || c.reports("Unreadable") > 0 {
				t.Errorf("reported %q", c.store.report.(*reportRecorder).all())
			}
			c.see(infoOf(node, []*corev1.Pod{pod.DeepCopy()}))
			if n := c.store.cluster.Nodes()["n1"]; len(n.Edited) > 0 {
				t.Errorf("after it was put right: %v", n.Edited)
			}
		})
	}
}

func TestModesThatAreEditedLaterDoNotMakeTheLegacyTextUnreadable(t *testing.T) {
	c, node := newScene(t), nodeOf(t, devices("n1", 1, 10000))
	pod := runningOn(t, podOf("p", "g", asks{number: 1, memory: 3000}), "n1", share("GPU-n1-0", 3000))
	delete(pod.Annotations, wire.PodPlacement)
	c.exists(pod)
	c.see(infoOf(node, []*corev1.Pod{pod}))
	c.see(infoOf(node, []*corev1.Pod{patched(pod, wire.UserMode, "mig")}))
	if n := c.store.cluster.Nodes()["n1"]; len(n.Blocking)+len(n.Edited) > 0 || c.used() != sharing.MiBs(3000) {
		t.Errorf("%v used, %v, %v", c.used(), n.Blocking, n.Edited)
	}
}

func TestATextThatCouldNotBeReadMayBePutRight(t *testing.T) {
	c, node := newScene(t), nodeOf(t, devices("n1", 1, 10000))
	good := runningOn(t, podOf("p", "g", asks{number: 1, memory: 3000}), "n1", share("GPU-n1-0", 3000))
	c.exists(good)
	c.see(infoOf(node, []*corev1.Pod{patched(good, wire.PodPlacement, "{")}))
	c.see(infoOf(node, []*corev1.Pod{good}))
	if n := c.store.cluster.Nodes()["n1"]; len(n.Blocking)+len(n.Edited) > 0 || c.used() != sharing.MiBs(3000) {
		t.Errorf("%v used, %v, %v", c.used(), n.Blocking, n.Edited)
	}
}

func TestWhatTheAPIServerAcceptedIsBelievedBeforeAnEditThatCameFirst(t *testing.T) {
	pod := runningOn(t, podOf("p", "g", asks{number: 1, memory: 3000}), "n1", share("GPU-n1-0", 3000))
	sent := maps.Clone(pod.Annotations)
	c, node := newScene(t), nodeOf(t, devices("n1", 1, 10000))
	placement, err := wire.DecodePlacement(sent[wire.PodPlacement])
	if err != nil {
		t.Fatal(err)
	}
	c.store.cluster.Pods().Decide(nodes.Handover{Pod: pod}, podstate.Decision{Node: "n1", Placement: placement, Annotations: sent})
	if _, _, err := c.store.cluster.Pods().BeginBind(pod, "n1"); err != nil {
		t.Fatal(err)
	}
	c.store.cluster.Pods().EndBind("uid-p", "n1", nil)
	// The first that a snapshot shows of the bound pod is the edited one.
	c.see(infoOf(node, []*corev1.Pod{patched(pod, wire.PodPlacement, `{"version":1,"node":"n1","containers":[]}`, wire.PodAssigned, "")}))
	if c.used() != sharing.MiBs(3000) || c.reports("DevicePlacementEdited") != 1 {
		t.Errorf("%v used, reported %q", c.used(), c.store.report.(*reportRecorder).all())
	}
	c.see(infoOf(node, nil))
	if c.store.cluster.Pods().Decisions() != 0 {
		t.Error("the pod is gone and its placement still assumed")
	}
}

func TestAPodThatIsGoneIsForgotten(t *testing.T) {
	c, node := newScene(t), nodeOf(t, devices("n1", 1, 10000))
	pod := runningOn(t, podOf("p", "g", asks{number: 1, memory: 3000}), "n1", share("GPU-n1-0", 3000))
	c.exists(pod)
	c.see(infoOf(node, []*corev1.Pod{pod}))
	c.see(infoOf(node, nil)) // Volcano has lost it, the API server has not
	if !c.store.cluster.Pods().State("uid-p").FirstOn("n1") {
		t.Error("forgotten although the pod exists")
	}
	if err := c.api.Delete(pod); err != nil {
		t.Fatal(err)
	}
	c.see(infoOf(node, nil))
	if s := c.store.cluster.Pods().State("uid-p"); s != (podstate.State{}) {
		t.Errorf("still known: %+v", s)
	}
}

func TestANodeThatIsRegisteredAnewIsNotUsedBeforeItsPodsAreBack(t *testing.T) {
	pod := runningOn(t, podOf("p", "g", asks{number: 1, memory: 9000}), "n1", share("GPU-n1-0", 9000))
	for name, between := range map[string][]*api.NodeInfo{
		"gone for a snapshot":       {infoOf(nodeOf(t, devices("n2", 1, 10000)), nil)},
		"back before the next one":  nil,
		"gone, and a mistake later": {infoOf(nodeOf(t, devices("n2", 1, 10000)), nil), infoOf(nodeOf(t, devices("n2", 1, 10000)), nil)},
	} {
		t.Run(name, func(t *testing.T) {
			c := newScene(t)
			c.exists(pod)
			before, after := nodeOf(t, devices("n1", 1, 10000)), nodeOf(t, devices("n1", 1, 10000))
			before.UID, after.UID = "first", "second"
			c.see(infoOf(before, []*corev1.Pod{pod}))
			for _, info := range between {
				c.see(info)
			}
			empty := infoOf(after, nil)
			if err := try(c.see(empty), empty); err == nil || !strings.Contains(err.Error(), "told again of pod ns/p") {
				t.Errorf("the node that seems empty says %v", err)
			}
			back := infoOf(after, []*corev1.Pod{pod})
			p := c.see(back)
			if len(p.awaited) > 0 || len(c.store.cluster.Pods().Awaited()) > 0 || c.used() != sharing.MiBs(9000) {
				t.Errorf("with its pod back: awaited %v, %v used", p.awaited, c.used())
			}
		})
	}
}
