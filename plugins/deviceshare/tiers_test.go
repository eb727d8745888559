// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/actions/reclaim"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins"
	"volcano.sh/volcano/pkg/scheduler/plugins/conformance"
	"volcano.sh/volcano/pkg/scheduler/plugins/gang"
	"volcano.sh/volcano/pkg/scheduler/plugins/priority"
	"volcano.sh/volcano/pkg/scheduler/plugins/proportion"
)

// tiersOf are tiers of plugins by name, with Volcano's defaults; a name with a minus
// has no say about preemption.
func tiersOf(tiers ...string) []conf.Tier {
	var out []conf.Tier
	for _, names := range tiers {
		var t conf.Tier
		for _, name := range strings.Fields(names) {
			bare, minus := strings.CutPrefix(name, "-")
			o := conf.PluginOption{Name: bare}
			if minus {
				o.EnabledPreemptable = new(bool)
			}
			plugins.ApplyPluginConfDefaults(&o)
			t.Plugins = append(t.Plugins, o)
		}
		out = append(out, t)
	}
	return out
}

func TestTiersInWhichPodsWouldBeEvictedInVainAreToldFromOthers(t *testing.T) {
	for name, c := range map[string]struct {
		tiers []conf.Tier
		want  []string
	}{
		"one tier":                        {tiersOf("priority gang conformance deviceshare overcommit -drf predicates proportion nodeorder binpack"), nil},
		"sums in a later tier":            {tiersOf("priority gang conformance deviceshare", "overcommit -drf predicates proportion"), []string{"reclaim: in another tier: proportion"}},
		"both in a later tier":            {tiersOf("gang deviceshare", "drf capacity"), []string{"preempt: in another tier: drf", "reclaim: in another tier: capacity"}},
		"limits in an earlier tier":       {tiersOf("-gang", "deviceshare proportion"), []string{"reclaim: in another tier: gang"}},
		"two behind it":                   {tiersOf("deviceshare gang conformance"), []string{"preempt: behind it, where only one may be: gang, conformance", "reclaim: behind it, where only one may be: gang, conformance"}},
		"others that evict nobody":        {tiersOf("deviceshare", "predicates nodeorder binpack overcommit"), nil},
		"this plugin has no say":          {tiersOf("-deviceshare", "priority"), nil},
		"this plugin is not there at all": {tiersOf("gang", "proportion"), nil},
	} {
		if got := tierMistakes(c.tiers, true, true); !slices.Equal(got, c.want) {
			t.Errorf("%s: said %q, want %q", name, got, c.want)
		}
		if got := tierMistakes(c.tiers, false, false); len(got) > 0 {
			t.Errorf("%s: neither action runs and it said %q", name, got)
		}
	}
}

func TestBadTiersAreToldOnceForEachConfiguration(t *testing.T) {
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	klog.SetOutputBySeverity("ERROR", &log)
	t.Cleanup(func() { klog.LogToStderr(true); klog.SetOutput(io.Discard) })
	conf.EnabledActionMap = map[string]bool{"reclaim": true}
	s := NewStore(Options{Report: &reportRecorder{}})
	good, bad := tiersOf("gang deviceshare proportion"), tiersOf("gang deviceshare", "proportion")
	for i, tiers := range [][]conf.Tier{good, bad, bad, good, bad} {
		s.checkTiers(tiers)
		klog.Flush()
		if got, want := strings.Count(log.String(), "evicted in vain"), []int{0, 1, 1, 1, 2}[i]; got != want {
			t.Errorf("after session %d it was told %d times, want %d", i, got, want)
		}
	}
}

// shippedTiers are those of the manifests.
func shippedTiers(t *testing.T) []conf.Tier {
	t.Helper()
	text, err := os.ReadFile("../../manifests/install/deviceshare.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(string(text), "\n---\n") {
		var m corev1.ConfigMap
		if yaml.Unmarshal([]byte(doc), &m) != nil || m.Name != "deviceshare-scheduler-config" {
			continue
		}
		// Volcano's types carry the names for another reader of YAML.
		var c struct {
			Tiers []struct {
				Plugins []struct {
					Name              string `json:"name"`
					EnablePreemptable *bool  `json:"enablePreemptable"`
				} `json:"plugins"`
			} `json:"tiers"`
		}
		if err := yaml.Unmarshal([]byte(m.Data["volcano-scheduler.conf"]), &c); err != nil {
			t.Fatal(err)
		}
		var out []conf.Tier
		for _, tier := range c.Tiers {
			var to conf.Tier
			for _, o := range tier.Plugins {
				p := conf.PluginOption{Name: o.Name, EnabledPreemptable: o.EnablePreemptable}
				plugins.ApplyPluginConfDefaults(&p)
				to.Plugins = append(to.Plugins, p)
			}
			out = append(out, to)
		}
		return out
	}
	t.Fatal("the manifests have no configuration of the scheduler")
	return nil
}

// A pod that wants the compute of a device for itself cannot use the memory that one
// of two pods on it gives up, which the sums think it can.
func TestWithTheShippedTiersReclaimEvictsNobodyInVain(t *testing.T) {
	tiers := shippedTiers(t)
	if said := tierMistakes(tiers, true, true); len(said) > 0 {
		t.Error(said)
	}
	kept, full := lowOn(t, "kept", "low", "GPU-n1-0", 6000, 1), lowOn(t, "full", "low", "GPU-n1-1", 10000, 1)
	for _, pod := range []*corev1.Pod{kept, full} {
		pod.Annotations[schedulingv1beta1.PodPreemptable] = "false"
	}
	high := groupOf("high", 1)
	high.Spec.Queue = "other"
	w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("low", 0), high,
		kept, full, lowOn(t, "a", "low", "GPU-n1-0", 4000, 1), withCPUs(podOf("new", "high", asks{number: 1, memory: 4000, cores: 100}), 1))
	w.cache.AddQueueV1beta1(queueOf("other", nil))
	for name, build := range map[string]framework.PluginBuilder{
		priority.PluginName: priority.New, gang.PluginName: gang.New, conformance.PluginName: conformance.New, proportion.PluginName: proportion.New,
	} {
		framework.RegisterPluginBuilder(name, build)
	}
	w.tiers = nil
	for _, tier := range tiers {
		tier.Plugins = slices.DeleteFunc(tier.Plugins, func(o conf.PluginOption) bool {
			return !slices.Contains([]string{"priority", "gang", "conformance", "proportion", PluginName}, o.Name)
		})
		w.tiers = append(w.tiers, tier)
	}
	ssn := w.open()
	defer framework.CloseSession(ssn)
	conf.EnabledActionMap = map[string]bool{"allocate": true, "reclaim": true}
	allocate.New().Execute(ssn)
	reclaim.New().Execute(ssn)
	for _, task := range ssn.Nodes["n1"].Tasks {
		if task.Status == api.Releasing {
			t.Errorf("%s is evicted, which makes no room", task.Name)
		}
	}
}
