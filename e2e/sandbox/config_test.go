// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func testValues() configValues {
	l := layout{repo: "/repo", state: "/repo/.sandbox/state"}
	return newConfigValues(l, ports{Kubelet: 1, KubeletHealth: 2}, "192.0.2.7", "/usr/sbin/runc")
}

func TestEveryTemplateRendersCompletely(t *testing.T) {
	for name := range configFiles {
		text, err := render(name, testValues())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, "<no value>") || strings.Contains(text, "{{") {
			t.Errorf("%s is not complete:\n%s", name, text)
		}
	}
}

func TestKubeletConfigurationSaysWhatThisSandboxNeeds(t *testing.T) {
	text, err := render("kubelet.yaml", testValues())
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	l := layout{repo: "/repo", state: "/repo/.sandbox/state"}
	want := map[string]any{
		"cgroupDriver": "cgroupfs", "cgroupRoot": l.cgroup(), "failCgroupV1": false, "failSwapOn": false,
		"makeIPTablesUtilChains": false, "address": "192.0.2.7", "port": float64(1), "healthzPort": float64(2),
		"containerRuntimeEndpoint": "unix:///repo/.sandbox/state/ctd.sock", "podLogsDir": "/repo/.sandbox/state/pods",
	}
	for k, v := range want {
		if got[k] != v && toInt(got[k]) != toInt(v) {
			t.Errorf("%s is %v, want %v", k, got[k], v)
		}
	}
}

// toInt makes numbers of the decoders comparable; anything else is -1 and -2, never equal.
func toInt(v any) any {
	switch n := v.(type) {
	case float64:
		return int64(n)
	case int64:
		return n
	default:
		return v
	}
}

func TestNetworkConfigurationIsJSONWithoutMasquerading(t *testing.T) {
	text, err := render("cni.conflist", testValues())
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Plugins []struct {
			Type   string
			IPMasq *bool
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Plugins) != 1 || got.Plugins[0].Type != "ptp" || got.Plugins[0].IPMasq == nil || *got.Plugins[0].IPMasq {
		t.Errorf("got %+v, want ptp with ipMasq false: there is no iptables in the sandbox", got.Plugins)
	}
}

func TestContainerdKeepsEverythingBelowTheStateDirectory(t *testing.T) {
	text, err := render("containerd.toml", testValues())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"restrict_oom_score_adj = true", `cdi_spec_dirs = ["/repo/.sandbox/state/cdi"]`, "netns_mounts_under_state_dir = true",
		`sandbox = "` + runtimeName("deviceshare/pause:sandbox") + `"`, `Root = "/repo/.sandbox/state/runc"`,
		`root = "/repo/.sandbox/state/containerd"`, `state = "/repo/.sandbox/state/ctd"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
}

func TestTheSchedulerIsConfiguredAsTheManifestsDoIt(t *testing.T) {
	all, err := objects("../../manifests/install/deviceshare.yaml", map[string]schema.GroupVersionResource{"ConfigMap": {}})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		text, ok, err := unstructured.NestedString(o.Object, "data", "volcano-scheduler.conf")
		if err != nil || !ok {
			continue
		}
		var shipped, ours any
		if err := errors.Join(yaml.Unmarshal([]byte(text), &shipped), yaml.Unmarshal([]byte(DefaultSchedulerConf), &ours)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(ours, shipped) {
			t.Errorf("the sandbox has\n%s\nthe manifests have\n%s", DefaultSchedulerConf, text)
		}
		return
	}
	t.Error("the manifests have no configuration of the scheduler")
}

func TestOptionsReportEveryMistakeAtOnce(t *testing.T) {
	o := Options{Repo: "/repo", State: "relative/" + strings.Repeat("x", 60), SimulatedNodes: -1, StockScheduler: true, SchedulerBinary: "/x"}
	_, err := o.Defaults()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"absolute path", "longer than 60 bytes", "must not be negative", "choose one"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}

func TestSchedulerIsOursUnlessAskedOtherwise(t *testing.T) {
	l := layout{repo: t.TempDir()}
	tests := map[string]struct {
		opts Options
		want string
	}{
		"a given binary":                        {Options{SchedulerBinary: "/x/sched"}, "/x/sched"},
		"Volcano's on request":                  {Options{StockScheduler: true}, l.bin("volcano-scheduler")},
		"Volcano's while ours has no source":    {Options{}, l.bin("volcano-scheduler")},
		"no other with the race detector, same": {Options{Race: true}, l.bin("volcano-scheduler")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := schedulerBinary(tc.opts, l); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestGPULinesOfATopologyAreCounted(t *testing.T) {
	if n := countGPUs(DefaultTopology); n != 2 {
		t.Errorf("the default topology has %d GPUs, want 2", n)
	}
	if n := countGPUs("fakegpu 1\n# gpu model=x\n  gpu model=\"a gpu\"\ngpus\n"); n != 1 {
		t.Errorf("counted %d, want 1: no comment, no other word", n)
	}
}

func TestTheStateOfADeepCloneIsWhereSocketsFit(t *testing.T) {
	cases := map[string]string{
		"a short path keeps its state inside":  "/src/deviceshare",
		"a deep path gets a directory in /tmp": "/home/somebody/projects/kubernetes/gpu/sharing/deviceshare/clones/first",
	}
	for name, repo := range cases {
		state := defaultState(repo, false)
		if len(state) > longestState {
			t.Errorf("%s: %s has %d bytes", name, state, len(state))
		}
		if inside := strings.HasPrefix(state, repo+"/"); inside != (len(repo) < 45) {
			t.Errorf("%s: %s", name, state)
		}
		if state != defaultState(repo, false) || state == defaultState(repo+"2", false) || state == defaultState(repo, true) {
			t.Errorf("%s: want one directory per repository", name)
		}
	}
}
