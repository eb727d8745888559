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

	"deviceshare/plugins/deviceshare/arguments"
)

func TestBadTiersAreToldOnceForEachConfiguration(t *testing.T) {
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	klog.SetOutputBySeverity("ERROR", &log)
	t.Cleanup(func() { klog.LogToStderr(true); klog.SetOutput(io.Discard) })
	conf.EnabledActionMap = map[string]bool{"reclaim": true}
	s := NewStore(Options{Report: &reportRecorder{}})
	tierOf := func(names ...string) conf.Tier {
		var tier conf.Tier
		for _, name := range names {
			o := conf.PluginOption{Name: name}
			plugins.ApplyPluginConfDefaults(&o)
			tier.Plugins = append(tier.Plugins, o)
		}
		return tier
	}
	good, bad := []conf.Tier{tierOf("gang", PluginName, "proportion")}, []conf.Tier{tierOf("gang", PluginName), tierOf("proportion")}
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
	if said := arguments.TierMistakes(tiers, true, true); len(said) > 0 {
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
