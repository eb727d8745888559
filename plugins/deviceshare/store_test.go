// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/page"
	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// ask predicates a pod that wants 1000 MiB on the node.
func try(p *Plugin, info *api.NodeInfo) error {
	return p.predicate(api.NewTaskInfo(podOf("new", "g", asks{number: 1, memory: 1000})), info)
}

func TestANodeThatIsNotUsableSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		says   string
	}{
		"not ready":           {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, "not ready"},
		"ready is not said":   {func(n *corev1.Node) { n.Status.Conditions = nil }, "not ready"},
		"device plugin gone":  {func(n *corev1.Node) { n.Status.Allocatable[wire.ResourceNumber] = resource.MustParse("0") }, "device plugin is not running"},
		"nothing published":   {func(n *corev1.Node) { n.Annotations = nil }, "publishes no devices"},
		"malformed inventory": {func(n *corev1.Node) { n.Annotations[wire.NodeInventory] = `{"version":1,` }, "cannot be read"},
		"malformed legacy text": {func(n *corev1.Node) {
			delete(n.Annotations, wire.NodeInventory)
			n.Annotations[wire.NodeRegister] = "GPU-0,ten,lots,x:"
		}, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			node := nodeOf(t, devices("n1", 1, 10000))
			c.change(node)
			bad, good := infoOf(node, nil), infoOf(nodeOf(t, devices("n2", 1, 10000)), nil)
			p := bare(t, bad, good)
			if err := try(p, bad); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("refused with %v, want %q", err, c.says)
			} else if fe := err.(*api.FitError); !fe.Status.ContainsUnschedulableAndUnresolvable() {
				t.Errorf("status %v: evicting pods would not help", fe.Status)
			}
			if err := try(p, good); err != nil {
				t.Errorf("another node suffers: %v", err)
			}
		})
	}
}

func TestAMalformedInventoryIsReportedOnceAndAgainAfterItWasMended(t *testing.T) {
	s := NewStore(Options{Backends: factory.New(), Report: &reportRecorder{}})
	report := s.report.(*reportRecorder)
	s.objects = noObjects{}
	good := nodeOf(t, devices("n1", 1, 10000))
	bad := good.DeepCopy()
	bad.Annotations[wire.NodeInventory] = "{"
	heartbeat := bad.DeepCopy()
	for i, step := range []struct {
		node *corev1.Node
		want int
	}{{bad, 1}, {bad, 1}, {heartbeat, 1}, {good, 1}, {bad, 2}} {
		ssn, _ := sessionOf(infoOf(step.node, nil))
		p := s.Build(framework.Arguments{}).(*Plugin)
		p.joinSession(ssn)
		p.OnSessionClose(ssn)
		if got := report.all(); len(got) != step.want {
			t.Fatalf("step %d: reported %q, want %d reports", i, got, step.want)
		}
	}
	if !strings.HasPrefix(report.all()[0], "Node n1: DeviceInventoryUnreadable") {
		t.Errorf("reported %q", report.all()[0])
	}
}

func TestAPodWhosePlacementCannotBeReadBlocksItsNodeAndNoOther(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"garbled": func(p *corev1.Pod) { p.Annotations[wire.PodPlacement] = "{" },
		"holds nothing": func(p *corev1.Pod) {
			p.Annotations[wire.PodPlacement] = `{"version":1,"node":"n1","containers":[]}`
			delete(p.Annotations, wire.PodAssigned)
		},
		"removed after it ran": func(p *corev1.Pod) { p.Annotations = nil; ranOnce(p) },
		"for another node":     func(p *corev1.Pod) { runningOn(t, p, "n2", share("GPU-n2-0", 100)); boundTo(p, "n1") },
	} {
		t.Run(name, func(t *testing.T) {
			pod := runningOn(t, podOf("odd", "g", asks{number: 1, memory: 100}), "n1", share("GPU-n1-0", 100))
			change(pod)
			n1, n2 := infoOf(nodeOf(t, devices("n1", 2, 10000)), []*corev1.Pod{pod}), infoOf(nodeOf(t, devices("n2", 1, 10000)), nil)
			p := bare(t, n1, n2)
			if err := try(p, n1); err == nil || !strings.Contains(err.Error(), "2 blocked by a placement that cannot be read (Blocked)") {
				t.Errorf("the node with the pod says %v", err)
			}
			if err := try(p, n2); err != nil {
				t.Errorf("the other node says %v", err)
			}
			if got := p.store.report.(*reportRecorder).all(); len(got) != 1 || !strings.HasPrefix(got[0], "Pod odd: DevicePlacementUnreadable") {
				t.Errorf("reported %q", got)
			}
		})
	}
}

// ranOnce makes the first container of the pod one that has run and waits to be
// started again.
func ranOnce(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:                 p.Spec.Containers[0].Name,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.Unix(1600000000, 0)}},
	}}
}

func TestAPodThatWasBoundWithoutAPlacementHoldsNothingWhereItCannotStart(t *testing.T) {
	for name, c := range map[string]struct {
		pod    func(*corev1.Pod)
		legacy bool // the node has the legacy device plugin
		holds  bool
	}{
		"never started": {},
		"only a container that asks for none ran": {pod: func(p *corev1.Pod) {
			p.Spec.Containers = append([]corev1.Container{{Name: "plain"}}, p.Spec.Containers...)
			ranOnce(p)
		}},
		"one that asks has run":           {pod: ranOnce, holds: true},
		"beside the legacy device plugin": {legacy: true, holds: true},
	} {
		t.Run(name, func(t *testing.T) {
			odd := boundTo(podOf("odd", "g", asks{number: 1, memory: 100}), "n1")
			if c.pod != nil {
				c.pod(odd)
			}
			node := nodeOf(t, devices("n1", 2, 10000))
			if c.legacy {
				delete(node.Annotations, wire.NodeInventory)
			}
			n1 := infoOf(node, []*corev1.Pod{odd})
			p := bare(t, n1)
			if err := try(p, n1); (err != nil) != c.holds {
				t.Errorf("the node says %v", err)
			}
			reason := map[bool]string{true: "DevicePlacementUnreadable", false: "DevicePlacementMissing"}[c.holds]
			if got := p.store.report.(*reportRecorder).all(); len(got) != 1 || !strings.HasPrefix(got[0], "Pod odd: "+reason) {
				t.Errorf("reported %q, want %s", got, reason)
			}
		})
	}
}

func TestAPodWithoutVgpuNumberHoldsNothing(t *testing.T) {
	// The kubelet never asks a device plugin for it, whoever bound it and whatever
	// its annotations say.
	garbled := boundTo(podOf("garbled", "g", asks{memory: 100}), "n1")
	garbled.Annotations[wire.PodPlacement] = "{"
	forged := runningOn(t, podOf("forged", "g", asks{}), "n1", share("GPU-n1-0", 10000))
	n1 := infoOf(nodeOf(t, devices("n1", 1, 10000)), []*corev1.Pod{boundTo(podOf("plain", "g", asks{memory: 100}), "n1"), garbled, forged})
	if err := try(bare(t, n1), n1); err != nil {
		t.Error(err)
	}
}

func TestAPodThatAskedUnderNamesOfBeforeKeepsItsDevices(t *testing.T) {
	node, pods := full(t, "n1")
	n1 := infoOf(node, pods)
	p := bare(t, n1)
	names := podspec.DefaultNames()
	names.Number, names.Memory, names.Cores = "example.com/gpus", "example.com/memory", "example.com/cores"
	p.store.Configure(nodes.Settings{Names: names, Factor: 1})
	ssn, _ := sessionOf(n1)
	p.store.Build(framework.Arguments{}).(*Plugin).joinSession(ssn)
	if got := len(p.store.cluster.Nodes()["n1"].Ledger.Owners()); got != 40 {
		t.Errorf("%d of 40 pods hold devices after the resources were renamed", got)
	}
}

func TestANodeIsReadAnewWhenSomethingOnItChanged(t *testing.T) {
	pods := []*corev1.Pod{
		runningOn(t, podOf("a", "g", asks{number: 1, memory: 1000}), "n1", share("GPU-n1-0", 1000)),
		runningOn(t, podOf("b", "g", asks{number: 1, memory: 2000}), "n1", share("GPU-n1-0", 2000)),
	}
	inv := devices("n1", 1, 10000)
	node := nodeOf(t, inv)
	inv.Devices[0].Healthy = false
	broken := nodeOf(t, inv)
	var clock time.Duration
	inv.Devices[0].Healthy, inv.Devices[0].Cordon = true, &sharing.Cordon{Until: "1970-01-01T00:01:00Z"}
	cordoned := nodeOf(t, inv)
	again := runningOn(t, podOf("b", "g", asks{number: 1, memory: 500}), "n1", share("GPU-n1-0", 500))
	again.UID = "uid-b-again"

	s := NewStore(Options{Backends: factory.New(), Report: &reportRecorder{}, Now: func() time.Time { return time.Unix(0, 0).Add(clock) }})
	s.objects = noObjects{}
	for _, step := range []struct {
		name string
		info *api.NodeInfo
		used int64
		open bool
	}{
		{"at first", infoOf(node, pods), 3000, true},
		{"unchanged", infoOf(node, pods), 3000, true},
		{"a pod ended", infoOf(node, pods[:1]), 1000, true},
		{"a pod of the same name came", infoOf(node, []*corev1.Pod{pods[0], again}), 1500, true},
		{"the device broke", infoOf(broken, []*corev1.Pod{pods[0], again}), 1500, false},
		{"it was mended", infoOf(node.DeepCopy(), pods), 3000, true},
		{"it was cordoned for a minute", infoOf(cordoned, pods), 3000, false},
		{"unchanged", infoOf(cordoned, pods), 3000, false},
		{"the minute is over", infoOf(cordoned, pods), 3000, true},
		{"unchanged", infoOf(cordoned, pods), 3000, true},
	} {
		if step.name == "the minute is over" {
			clock = time.Minute
		}
		before := s.cluster.Nodes()["n1"]
		ssn, _ := sessionOf(step.info)
		p := s.Build(framework.Arguments{}).(*Plugin)
		p.joinSession(ssn)
		if (s.cluster.Nodes()["n1"] == before) != (step.name == "unchanged") {
			t.Errorf("%s: read anew: %t", step.name, s.cluster.Nodes()["n1"] != before)
		}
		if got := s.cluster.Nodes()["n1"].Ledger.Views()[0].UsedMemory(); got != sharing.MiBs(step.used) {
			t.Errorf("%s: %v used", step.name, got)
		}
		if err := try(p, step.info); (err == nil) != step.open {
			t.Errorf("%s: %v", step.name, err)
		}
		p.OnSessionClose(ssn)
	}
	ssn, _ := sessionOf(infoOf(nodeOf(t, devices("n2", 1, 10000)), nil))
	s.Build(framework.Arguments{}).(*Plugin).joinSession(ssn)
	if _, ok := s.cluster.Nodes()["n1"]; ok || len(s.rank) != 1 {
		t.Error("a node that is gone is still known")
	}
}

func TestAnEditOfTheConfigurationTakesEffectWithTheNextSession(t *testing.T) {
	n1 := infoOf(nodeOf(t, devices("n1", 1, 10000)), nil)
	p := bare(t, n1)
	names := podspec.DefaultNames()
	names.Number = "example.com/gpus"
	p.store.Configure(nodes.Settings{Names: names, Factor: 1})
	if err := try(p, n1); err != nil {
		t.Errorf("the session that is open says %v", err)
	}
	ssn, _ := sessionOf(n1)
	next := p.store.Build(framework.Arguments{}).(*Plugin)
	next.joinSession(ssn)
	if err := try(next, n1); err == nil || !strings.Contains(err.Error(), "example.com/gpus") {
		t.Errorf("the next session says %v", err)
	}
}

type noConfig struct{ used []string }

func (c *noConfig) Use(namespace, name string) { c.used = append(c.used, namespace+"/"+name) }

func TestNoDevicesAreGivenBeforeTheConfigurationIsRead(t *testing.T) {
	config := &noConfig{}
	s := NewStore(Options{Backends: factory.New(), Report: &reportRecorder{}, Config: config})
	s.objects = noObjects{}
	n1 := infoOf(nodeOf(t, devices("n1", 1, 10000)), nil)
	ssn, _ := sessionOf(n1)
	open := func() *Plugin {
		p := s.Build(framework.Arguments{"deviceshare.KnownGeometriesCMName": "mine", "deviceshare.KnownGeometriesCMNamespace": "here"}).(*Plugin)
		p.joinSession(ssn)
		return p
	}
	if err := try(open(), n1); err == nil || !strings.Contains(err.Error(), "configuration") {
		t.Errorf("before: %v", err)
	}
	if !slices.Equal(config.used, []string{"here/mine"}) {
		t.Errorf("asked for %v", config.used)
	}
	s.Withhold("ConfigMap here/mine: gpuMemoryFactor: not a number")
	if err := try(open(), n1); err == nil || !strings.Contains(err.Error(), "here/mine: gpuMemoryFactor") {
		t.Errorf("while it has a mistake: %v", err)
	}
	s.Configure(nodes.DefaultSettings())
	if err := try(open(), n1); err != nil {
		t.Errorf("after: %v", err)
	}
	s.Withhold("a later mistake")
	if err := try(open(), n1); err != nil {
		t.Errorf("after a later mistake: %v", err)
	}
}

func TestAPodThatMayAskUnderANameNobodyKnowsYetIsKeptFromNodesWithDevicesOnly(t *testing.T) {
	s := NewStore(Options{Backends: factory.New(), Report: &reportRecorder{}, Config: &noConfig{}})
	s.objects = noObjects{}
	n1, plain := infoOf(nodeOf(t, devices("n1", 1, 10000)), nil), nodeOf(t, devices("n2", 1, 10000))
	plain.Annotations = nil
	n2 := infoOf(plain, nil)
	ssn, _ := sessionOf(n1, n2)
	p := s.Build(framework.Arguments{}).(*Plugin)
	p.joinSession(ssn)
	renamed := podOf("renamed", "g", asks{})
	renamed.Spec.Containers[0].Resources.Limits["x/gpu"] = resource.MustParse("1")
	for _, c := range []struct {
		pod        *corev1.Pod
		info       *api.NodeInfo
		pre, fails bool
	}{
		{podOf("ours", "g", asks{number: 1}), n1, true, true},
		{renamed, n1, false, true}, {renamed, n2, false, false},
		{podOf("cpu", "g", asks{}), n1, false, false},
	} {
		task := api.NewTaskInfo(c.pod)
		if err := p.prePredicate(task); (err != nil) != c.pre {
			t.Errorf("%s: beforehand: %v", c.pod.Name, err)
		}
		if err := p.predicate(task, c.info); (err != nil) != c.fails {
			t.Errorf("%s on %s: %v", c.pod.Name, c.info.Name, err)
		}
		task.NodeName, task.Status = c.info.Name, api.Allocated
		e := &framework.Event{Task: task}
		if p.onAllocate(e); (e.Err != nil) != c.fails {
			t.Errorf("%s on %s: allocated: %v", c.pod.Name, c.info.Name, e.Err)
		}
		p.SetupBindContextExtension(nil, &cache.BindContext{TaskInfo: task})
		if state := s.cluster.Pods().State(sharing.Owner(c.pod.UID)); (state.Decision() != nil) != c.fails || c.fails && state.Refuses() == nil {
			t.Errorf("%s on %s: %v, refuses %v", c.pod.Name, c.info.Name, state.Phase(), state.Refuses())
		}
		s.cluster = nodes.NewCluster(s.backends, s.report)
	}
}

func TestTheLedgerIsServedAsJSON(t *testing.T) {
	node, pods := full(t, "n1")
	odd := boundTo(podOf("odd", "g", asks{number: 1}), "n2")
	odd.Annotations[wire.PodPlacement] = "{"
	p := bare(t, infoOf(node, pods), infoOf(nodeOf(t, devices("n2", 1, 10000)), []*corev1.Pod{odd}))
	type served struct {
		Devices           []struct{ UsedMemoryBytes int64 }
		Owners            map[string]any
		Blocked, Problems []string
	}
	get := func(query string, code int) (out struct{ Nodes map[string]served }) {
		t.Helper()
		r := httptest.NewRecorder()
		p.store.LedgerHandler().ServeHTTP(r, httptest.NewRequest(http.MethodGet, page.Path+query, nil))
		if r.Code != code {
			t.Fatalf("status %d: %s", r.Code, r.Body)
		}
		if code == http.StatusOK {
			if err := json.Unmarshal(r.Body.Bytes(), &out); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	all := get("", http.StatusOK)
	if n := all.Nodes["n1"]; len(n.Devices) != 8 || len(n.Owners) != 40 || n.Devices[0].UsedMemoryBytes != int64(sharing.MiBs(7500)) {
		t.Errorf("n1: %d devices, %d owners, %+v", len(n.Devices), len(n.Owners), n.Devices)
	}
	if n := all.Nodes["n2"]; !slices.Equal(n.Blocked, []string{"uid-odd"}) || len(n.Problems) != 1 {
		t.Errorf("n2: %+v", n)
	}
	if one := get("?node=n2", http.StatusOK); len(one.Nodes) != 1 {
		t.Errorf("one node was asked for, %d came", len(one.Nodes))
	}
	get("?node=n9", http.StatusNotFound)
}

func TestMetricsHaveOurOwnNamesAndSayWhatIsBlocked(t *testing.T) {
	odd := boundTo(podOf("odd", "g", asks{number: 1}), "n1")
	odd.Annotations[wire.PodPlacement] = "{"
	n1 := infoOf(nodeOf(t, devices("n1", 2, 10000)), []*corev1.Pod{odd})
	p := bare(t, n1)
	_ = try(p, n1)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p.store)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"deviceshare_undecodable_pods": 1, "deviceshare_blocked_nodes": 1, "deviceshare_assumed_placements": 0,
		"deviceshare_device_memory_bytes": float64(sharing.MiBs(10000)), "deviceshare_device_shares": 0,
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "deviceshare_") {
			t.Errorf("metric %s", f.GetName())
		}
		if v, ok := want[f.GetName()]; ok && f.GetMetric()[0].GetGauge().GetValue() != v {
			t.Errorf("metric %s is %v, want %v", f.GetName(), f.GetMetric()[0], v)
		}
		delete(want, f.GetName())
	}
	if len(want) > 0 {
		t.Errorf("missing metrics: %v", want)
	}
}

func TestTheConfigurationInForceAndWhoDisagreesAreShown(t *testing.T) {
	var infos []*api.NodeInfo
	for name, hash := range map[string]string{"n1": "same", "n2": "other", "n3": ""} {
		n := nodeOf(t, devices(name, 1, 10000))
		if hash != "" {
			text, err := wire.EncodeConfig(wire.ConfigVersions{Device: hash})
			if err != nil {
				t.Fatal(err)
			}
			n.Annotations[wire.NodeConfig] = text
		}
		infos = append(infos, infoOf(n, nil))
	}
	p := bare(t, infos...)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p.store)
	p.store.Versions(wire.ConfigVersions{Device: "same", Node: "n", Geometry: "g"})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range families {
		switch f.GetName() {
		case "deviceshare_config_disagreeing_nodes":
			seen++
			if got := f.GetMetric()[0].GetGauge().GetValue(); got != 1 {
				t.Errorf("%v nodes disagree, want n2 alone", got)
			}
		case "deviceshare_config_info":
			seen++
			var labels []string
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			if got := strings.Join(labels, " "); got != "device=same geometry=g node=n" {
				t.Errorf("shown %s", got)
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d of the metrics are there", seen)
	}
}
