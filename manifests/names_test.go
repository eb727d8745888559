// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"deviceshare/config"
	webhook "deviceshare/plugins/admission"
)

// naming is what an administrator calls things.
type naming struct {
	number, memory, cores, percentage string
	scheduler                         string
}

func usualNaming() naming {
	return naming{"volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores", "volcano.sh/vgpu-memory-percentage", "volcano"}
}

// namings are the usual one with each name changed alone, and with all of them changed.
func namings() map[string]naming {
	out := map[string]naming{"all": {"example.com/count", "example.com/mem", "example.com/cores", "example.com/part", "other"}, "none": usualNaming()}
	for name, with := range map[string]func(*naming){
		"number":        func(n *naming) { n.number = "nvidia.com/gpu" },
		"memory":        func(n *naming) { n.memory = "nvidia.com/gpumem" },
		"cores":         func(n *naming) { n.cores = "nvidia.com/gpucores" },
		"percentage":    func(n *naming) { n.percentage = "nvidia.com/gpumem-percentage" },
		"no percentage": func(n *naming) { n.percentage = "" },
		"scheduler":     func(n *naming) { n.scheduler = "hami-scheduler" },
		"two swapped":   func(n *naming) { n.memory, n.cores = n.cores, n.memory },
	} {
		n := usualNaming()
		with(&n)
		out[name] = n
	}
	return out
}

// deviceConfig is device-config.yaml with what differs from the usual names.
func (n naming) deviceConfig() string {
	out, usual := "nvidia:\n  deviceSplitCount: 10\n", usualNaming()
	for _, line := range [][3]string{
		{"resourceCountName", n.number, usual.number}, {"resourceMemoryName", n.memory, usual.memory},
		{"resourceCoreName", n.cores, usual.cores}, {"resourceMemoryPercentageName", n.percentage, usual.percentage},
	} {
		if line[1] != line[2] {
			out += fmt.Sprintf("  %s: %q\n", line[0], line[1])
		}
	}
	return out
}

func (n naming) values() values {
	return values{"deviceConfig": n.deviceConfig(), "schedulerName": n.scheduler, "unaskedDevices.policy": "deny", "unaskedDevices.askedBy": []any{}}
}

// parts are the resources that are amounts of a device.
func (n naming) parts() []string {
	return slices.DeleteFunc([]string{n.memory, n.cores, n.percentage}, func(name string) bool { return name == "" })
}

// randomAsk is a pod whose containers name some of many resources.
func randomAsk(r *rand.Rand, n naming) *corev1.Pod {
	usual := usualNaming()
	pool := slices.Concat(n.parts(), usual.parts(), []string{n.number, n.number, n.number, usual.number, "nvidia.com/gpu", "rdma/hca", "cpu"})
	container := func(i int) corev1.Container {
		list := corev1.ResourceList{}
		for range r.IntN(4) {
			list[corev1.ResourceName(one(r, pool...))] = resource.MustParse(one(r, "0", "1", "1", "50", "1500", "2k"))
		}
		return corev1.Container{Name: fmt.Sprintf("c%d", i), Resources: corev1.ResourceRequirements{Limits: list, Requests: list}}
	}
	p := teamPod(some(r, 2, container)...)
	p.Spec.Containers = append(p.Spec.Containers, container(9))
	p.Spec.InitContainers = some(r, 2, container)
	p.Spec.SchedulerName = one(r, n.scheduler, n.scheduler, n.scheduler, "default-scheduler", "third")
	p.Spec.NodeName = one(r, "", "", "", "n1")
	if r.IntN(3) == 0 {
		p.Spec.Volumes = []corev1.Volume{hostPath("v", "/dev")}
	}
	return p
}

// requestRefusals counts what a pod that asks for devices is refused for, in the words of
// docs/adr/0021.
func requestRefusals(p *corev1.Pod, n naming) int {
	names := func(c corev1.Container, name string) bool {
		amount, is := c.Resources.Limits[corev1.ResourceName(name)]
		return is && !amount.IsZero()
	}
	asks, lacks := false, false
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		part := slices.ContainsFunc(n.parts(), func(name string) bool { return names(c, name) })
		_, counted := c.Resources.Limits[corev1.ResourceName(n.number)]
		asks, lacks = asks || part || names(c, n.number), lacks || part && !counted
	}
	if !asks {
		return 0
	}
	count := 0
	for _, wrong := range []bool{lacks, p.Spec.NodeName != "", p.Spec.SchedulerName == "default-scheduler"} {
		if wrong {
			count++
		}
	}
	return count
}

// chartConditions are the policies and the webhook's conditions of the chart, compiled.
func chartConditions(t *testing.T, n naming) (requests, unasked compiledPolicy, calls func(question) bool) {
	t.Helper()
	objects := decode(t, render(t, n.values()))
	for _, p := range all[*admissionv1.ValidatingAdmissionPolicy](objects) {
		switch p.Name {
		case "deviceshare-requests":
			requests = compile(t, p)
		case "deviceshare-unasked":
			unasked = compile(t, p)
		}
	}
	for _, m := range all[*admissionv1.MutatingWebhookConfiguration](objects) {
		if m.Name == "deviceshare" {
			c := webhookConditions(t, m.Webhooks[0].MatchConditions)
			calls = func(q question) bool { return isTrueOfAll(t, c, q) }
		}
	}
	if requests.validations == nil || unasked.validations == nil || calls == nil {
		t.Fatal("a policy or the webhook is missing")
	}
	return requests, unasked, calls
}

// Names are settings: whatever an administrator calls the resources and the scheduler, the
// policies refuse the pods that the oracle refuses, and the webhook is called for those that it
// would change.
func TestPoliciesAndWebhookFollowEveryName(t *testing.T) {
	for name, n := range namings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests, unasked, calls := chartConditions(t, n)
			device, problems := config.LoadDevice([]byte(n.deviceConfig()))
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			judge := webhook.NewSettings(device, []string{n.scheduler})
			refused, spared := 0, 0
			for seed := range uint64(600) {
				p := randomAsk(rand.New(rand.NewPCG(seed, 44)), n)
				q := creation(p)
				got := requests.refusals(t, q)
				if len(got) != requestRefusals(p, n) {
					t.Fatalf("seed %d: %s\nis refused for %q, want %d reasons", seed, text(t, p), got, requestRefusals(p, n))
				}
				if len(got) > 0 {
					refused++
				}
				mounts := slices.ContainsFunc(unasked.refusals(t, q), func(m string) bool { return strings.HasPrefix(m, "spec.volumes") })
				if want := len(p.Spec.Volumes) > 0 && !asksUnder(p, n); mounts != want {
					t.Fatalf("seed %d: %s\nmay not mount /dev: %v, want %v", seed, text(t, p), mounts, want)
				}
				if calls(q) {
					continue
				}
				spared++
				if v := webhook.Review(p, judge); v.Refused() || len(v.Warnings) > 0 || len(webhook.Complete(p, judge)) > 0 {
					t.Fatalf("seed %d: the webhook is not called for %s\nand would say %q", seed, text(t, p), v.Message())
				}
			}
			if refused < 60 || spared < 20 {
				t.Errorf("of 600 pods %d are refused and the webhook is not called for %d: they are not mixed", refused, spared)
			}
		})
	}
}

// asksUnder reports whether a pod asks for devices as docs/unasked.md says.
func asksUnder(p *corev1.Pod, n naming) bool {
	return slices.ContainsFunc(slices.Concat(p.Spec.Containers, p.Spec.InitContainers), func(c corev1.Container) bool {
		for name, amount := range c.Resources.Limits {
			ours := strings.HasPrefix(string(name), "volcano.sh/vgpu-") || slices.Contains(append(n.parts(), n.number), string(name))
			if ours && !amount.IsZero() {
				return true
			}
		}
		return false
	})
}

// A name that is a setting stands nowhere as a constant: with every name changed the chart has
// none of the usual ones left.
func TestNoUsualNameIsLeftWhereEveryNameIsChanged(t *testing.T) {
	v := namings()["all"].values()
	for path, value := range map[string]any{
		"configNamespace": "volcano-system", "placements.signed": "require", "view.page.enabled": true, "monitoring.podMonitor.enabled": true,
		"monitoring.rules.enabled": true, "monitoring.rules.aliases": true, "monitoring.rules.dcgm": true, "monitoring.dashboard.enabled": true,
	} {
		v[path] = value
	}
	out, err := runHelm(t, v, "template", "deviceshare", "chart", "--namespace=elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	usual := usualNaming()
	system := 0
	for line := range strings.SplitSeq(out, "\n") {
		for _, constant := range append(usual.parts(), usual.number, "deviceshare-system") {
			if strings.Contains(line, constant) {
				t.Errorf("%s: %s", constant, strings.TrimSpace(line))
			}
		}
		if strings.HasSuffix(line, "=volcano") || strings.Contains(line, `schedulerName == "volcano"`) {
			t.Errorf("the scheduler's name: %s", line)
		}
		if strings.Contains(line, "kube-system") && strings.TrimSpace(line) != "- kube-system" {
			system++
		}
	}
	if system > 0 {
		t.Errorf("%d lines name kube-system that do not exempt it", system)
	}
}

func TestADeviceConfigurationWithoutNamesThatCanBeUsedIsRefusedWithItsPath(t *testing.T) {
	for _, bad := range []string{`"a b/c"`, `7`, `""`, `"no-domain"`, `"x/y\" || true || \""`} {
		_, err := template(t, values{"deviceConfig": "nvidia:\n  resourceCountName: " + bad + "\n"})
		if err == nil || !strings.Contains(err.Error(), "deviceConfig: nvidia.resourceCountName") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
