// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

func state(inv sharing.Inventory) NodeState {
	return NodeState{
		Inventory: inv, Config: wire.ConfigVersions{Device: "d", Node: "n", Geometry: "g"},
		Names: podspec.DefaultNames(), Factor: 1, AmountsInStatus: true,
		Memory: 24575 * int64(len(inv.Devices)), Cores: 100 * int64(len(inv.Devices)),
	}
}

func inventory(healthy ...bool) sharing.Inventory {
	inv := sharing.Inventory{Node: "n"}
	for i, h := range healthy {
		inv.Devices = append(inv.Devices, sharing.Device{
			ID: sharing.DeviceID("GPU-" + string(rune('a'+i))), Index: i, Model: "NVIDIA A30", Memory: sharing.MiBs(24575),
			Cores: 100, MaxShares: 10, Healthy: h, Mode: sharing.HAMiCore, NUMA: -1,
		})
	}
	return inv
}

func TestABrokenDeviceIsNotOfferedInTheLegacyText(t *testing.T) {
	want, err := Desired(state(inventory(true, false)))
	if err != nil {
		t.Fatal(err)
	}
	text := want.Annotations[wire.NodeRegister]
	if !strings.Contains(text, "GPU-a,10,") || !strings.Contains(text, "GPU-b,0,") || !strings.Contains(text, ",false,") {
		t.Errorf("the text is %s", text)
	}
}

func TestANodeOnWhichNoPodCanStartOffersNoDevice(t *testing.T) {
	have := inventory(false, false)
	have.Devices[0].Reason, have.Devices[1].Reason = "the kubelet sleeps", "lost"
	s := state(have)
	want, err := Desired(s)
	if err != nil {
		t.Fatal(err)
	}
	got, found, err := wire.ReadNode(want.Annotations, "n", 1)
	if err != nil || !found || len(got.Devices) != 2 {
		t.Fatalf("it reads %+v, %v", got, err)
	}
	for i, why := range []string{"the kubelet sleeps", "lost"} {
		if d := got.Devices[i]; d.Healthy || d.Reason != why {
			t.Errorf("device %d is offered: %v, because of %q, want %q", i, d.Healthy, d.Reason, why)
		}
	}
	if want.Capacity[wire.ResourceMemory] != 49150 {
		t.Errorf("the capacity, in which running pods are counted, is %v", want.Capacity)
	}
}

func TestTheSignOfLifeIsRenewedOnlyWhenNeeded(t *testing.T) {
	want := DesiredNode{Annotations: map[string]string{"a": "1"}}
	now := time.Unix(1000, 0)
	just, before := now.Add(-5*time.Second), now.Add(-signEvery)
	for name, tc := range map[string]struct {
		have    map[string]string
		written time.Time
		patch   bool
		wait    time.Duration
	}{
		"all is well":                           {map[string]string{"a": "1", wire.NodeHandshake: "Reported yesterday"}, time.Time{}, false, 0},
		"a scheduler asks, and we have started": {map[string]string{"a": "1", wire.NodeHandshake: "Requesting_2026"}, time.Time{}, true, 0},
		"a scheduler answers at once":           {map[string]string{"a": "1", wire.NodeHandshake: "Requesting_2026"}, just, false, signEvery - 5*time.Second},
		"it has waited":                         {map[string]string{"a": "1", wire.NodeHandshake: "Requesting_2026"}, before, true, 0},
		"the clock went back":                   {map[string]string{"a": "1", wire.NodeHandshake: "Requesting_2026"}, now.Add(time.Hour), true, 0},
		"a scheduler gave up":                   {map[string]string{"a": "1", wire.NodeHandshake: "Deleted_2026"}, just, true, 0},
		"there is none":                         {map[string]string{"a": "1"}, just, true, 0},
		"something else changed":                {map[string]string{"a": "2", wire.NodeHandshake: "Reported yesterday"}, just, true, 0},
		"annotations of others do not matter":   {map[string]string{"a": "1", "b": "2", wire.NodeHandshake: "Reported x"}, time.Time{}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: tc.have}}
			isDue, wait := signOfLife(node, tc.written, now)
			if patch := annotationPatch(node, want, "now", isDue); (patch != nil) != tc.patch || wait != tc.wait {
				t.Errorf("the patch is %v, the next in %v", patch, wait)
			}
		})
	}
}

// A scheduler that answers every sign of life at once, as Volcano's does, is not answered at once.
func TestASchedulerThatAnswersEverySignOfLifeIsNoEndlessExchange(t *testing.T) {
	p := startPublisher(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	signs := 0
	for range 5 {
		p.await("a write", func(n *corev1.Node) bool { return capacity(n, wire.ResourceMemory) == 49150 })
		node := p.node()
		if strings.HasPrefix(node.Annotations[wire.NodeHandshake], "Reported ") {
			signs++
		}
		node.Annotations[wire.NodeHandshake] = "Requesting_x"
		node.Status.Capacity[wire.ResourceMemory] = resource.MustParse("0")
		if _, err := p.api.CoreV1().Nodes().Update(context.Background(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		// The repair of the capacity, in the next round, shows that the publisher has seen the
		// answer.
	}
	if signs != 1 {
		t.Errorf("%d signs of life in a moment, want 1", signs)
	}
}

// published is a node with a publisher at work.
type published struct {
	t       *testing.T
	api     *fake.Clientset
	changes chan struct{}
	begin   func()

	mu      sync.Mutex // guards what the publisher is told
	inv     sharing.Inventory
	names   podspec.Names
	amounts bool
	// hold keeps a device from being taken back.
	hold, withdrawn bool
	labels          map[string]string
	unread          string // why the devices are not known
	releases        []bool // what was said of the driver
}

// tell changes what is true and says so.
func (p *published) tell(change func()) {
	p.mu.Lock()
	change()
	p.mu.Unlock()
	p.changes <- struct{}{}
}

// NodeState implements NodeSource.
func (p *published) NodeState() (NodeState, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := state(p.inv)
	s.Names, s.AmountsInStatus, s.Withdrawn = p.names, p.amounts, p.withdrawn && !p.hold
	return s, true
}

// Unread implements NodeSource.
func (p *published) Unread() (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unread, p.unread != ""
}

// Labelled implements NodeSource: as in the agent, what is true depends on it at once.
func (p *published) Labelled(labels map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.labels = labels
	if len(labels) > 0 {
		p.inv = inventory(labels["works"] == "yes", false)
	}
}

// WantDriver implements NodeSource.
func (p *published) WantDriver(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.releases); n == 0 && is || n > 0 && p.releases[n-1] != is {
		p.releases = append(p.releases, is)
	}
}

// Withdraw implements NodeSource: as in the agent, what is true changes a little later.
func (p *published) Withdraw() {
	p.mu.Lock()
	before := p.withdrawn
	p.withdrawn = true
	p.mu.Unlock()
	if !before {
		go func() { p.changes <- struct{}{} }()
	}
}

func startPublisher(t *testing.T, node *corev1.Node) *published {
	t.Helper()
	p := startUnready(t, node, time.Hour)
	p.begin()
	return p
}

// startUnready starts a publisher that waits for the devices, and for late before it says so.
func startUnready(t *testing.T, node *corev1.Node, late time.Duration) *published {
	t.Helper()
	p := &published{t: t, api: fake.NewClientset(node), inv: inventory(true, true), names: podspec.DefaultNames(), amounts: true, changes: make(chan struct{})}
	publisher, err := NewPublisher(PublisherConfig{
		Client: p.api, Node: "n", Source: p, Changes: p.changes, Retry: time.Millisecond, Late: late,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.begin = publisher.Begin
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = publisher.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return p
}

func (p *published) node() *corev1.Node {
	p.t.Helper()
	n, err := p.api.CoreV1().Nodes().Get(context.Background(), "n", metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *published) await(what string, done func(*corev1.Node) bool) {
	p.t.Helper()
	deadline := time.Now().Add(10 * time.Minute)
	for !done(p.node()) {
		if time.Now().After(deadline) {
			p.t.Fatalf("still waiting: %s; the node has %v", what, p.node().Status.Capacity)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func capacity(n *corev1.Node, name string) int64 {
	q, ok := n.Status.Capacity[corev1.ResourceName(name)]
	if !ok {
		return -1
	}
	return q.Value()
}

func TestTheNodeIsKeptEqualToWhatIsTrue(t *testing.T) {
	p := startPublisher(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{"other": "stays"}}})
	p.await("the first write", func(n *corev1.Node) bool {
		return capacity(n, wire.ResourceMemory) == 49150 && capacity(n, wire.ResourceCores) == 200 && n.Annotations[wire.NodeInventory] != ""
	})
	if p.node().Annotations["other"] != "stays" {
		t.Error("an annotation of somebody else is gone")
	}
	spoiled := p.node().DeepCopy()
	spoiled.Status.Capacity[wire.ResourceMemory] = resource.MustParse("0") // as a kubelet does
	spoiled.Annotations[wire.NodeHandshake] = "Deleted_x"
	if _, err := p.api.CoreV1().Nodes().Update(context.Background(), spoiled, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.await("the repair", func(n *corev1.Node) bool {
		return capacity(n, wire.ResourceMemory) == 49150 && strings.HasPrefix(n.Annotations[wire.NodeHandshake], "Reported ")
	})
}

func TestChangesArePublishedAndOldNamesGo(t *testing.T) {
	p := startPublisher(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	p.await("the first write", func(n *corev1.Node) bool { return capacity(n, wire.ResourceMemory) == 49150 })
	p.tell(func() {
		p.inv = inventory(true)
		p.names.Memory = "example.com/memory"
	})
	p.await("the change", func(n *corev1.Node) bool {
		return capacity(n, "example.com/memory") == 24575 && capacity(n, wire.ResourceMemory) == -1 && capacity(n, wire.ResourceCores) == 100
	})
}

func TestWhatIsPublishedFollowsTheLabelsOfTheNode(t *testing.T) {
	healthy := func(want bool) func(*corev1.Node) bool {
		return func(n *corev1.Node) bool {
			inv, err := wire.DecodeInventory(n.Annotations[wire.NodeInventory])
			return err == nil && len(inv.Devices) > 0 && inv.Devices[0].Healthy == want
		}
	}
	p := startPublisher(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"works": "no"}}})
	p.await("the first inventory, with what the labels say", healthy(false))
	label := func(value string) {
		n := p.node().DeepCopy()
		n.Labels["works"] = value
		if _, err := p.api.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	label("yes")
	p.await("the label was changed", healthy(true))
	label("no")
	p.await("the label was changed back", healthy(false))
}

func TestAmountsCanBeLeftToTheDevicePlugin(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Status.Capacity = corev1.ResourceList{wire.ResourceMemory: resource.MustParse("7")}
	p := startPublisher(t, node)
	p.await("the first write", func(n *corev1.Node) bool { return n.Annotations[wire.NodeInventory] != "" })
	p.tell(func() { p.amounts = false })
	p.tell(func() {}) // the look before this one has ended
	n := p.node().DeepCopy()
	n.Status.Capacity[wire.ResourceMemory] = resource.MustParse("9")
	if _, err := p.api.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.tell(func() {})
	p.tell(func() {})
	if got := capacity(p.node(), wire.ResourceMemory); got != 9 {
		t.Errorf("the capacity is %d, want what the kubelet wrote", got)
	}
}

func TestTheNodeSaysWhichConfigurationIsInForce(t *testing.T) {
	want, err := Desired(state(inventory(true)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.DecodeConfig(want.Annotations[wire.NodeConfig])
	if err != nil || got != (wire.ConfigVersions{Device: "d", Node: "n", Geometry: "g"}) {
		t.Errorf("it says %q: %v", want.Annotations[wire.NodeConfig], err)
	}
}

func TestAPluginThatIsUninstalledPublishesNothingWhenItHasTakenItsDevicesBack(t *testing.T) {
	p := startPublisher(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{"other": "stays"}}})
	p.await("the first write", func(n *corev1.Node) bool { return n.Annotations[wire.NodeInventory] != "" })
	mark := func(until time.Time) {
		n := p.node()
		n.Annotations[wire.NodeWithdraw] = until.Format(time.RFC3339)
		if _, err := p.api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	told := func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.withdrawn }
	p.tell(func() { p.hold = true })
	mark(time.Now().Add(-time.Minute)) // of an uninstallation that failed
	p.tell(func() {})
	p.tell(func() {}) // the publisher has seen the mark
	if told() {
		t.Error("it heeds a mark that is over")
	}
	mark(time.Now().Add(time.Minute))
	p.await("the plugin to be told", func(*corev1.Node) bool { return told() })
	if p.node().Annotations[wire.NodeInventory] == "" {
		t.Error("the node is bare while devices are not taken back")
	}
	p.tell(func() { p.hold = false })
	p.await("a bare node", func(n *corev1.Node) bool { return len(n.Annotations) == 2 })
	if a := p.node().Annotations; a["other"] != "stays" || a[wire.NodeWithdraw] == "" {
		t.Errorf("annotations %v", a)
	}
}
