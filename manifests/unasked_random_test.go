// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"deviceshare/config"
	webhook "deviceshare/plugins/admission"
)

// one picks one of some values.
func one[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// some makes up to n values.
func some[T any](r *rand.Rand, n int, each func(i int) T) []T {
	var out []T
	for i := range r.IntN(n + 1) {
		out = append(out, each(i))
	}
	return out
}

func randomContainer(r *rand.Rand, name string) corev1.Container {
	c := corev1.Container{Name: name}
	c.Env = some(r, 3, func(int) corev1.EnvVar {
		v := corev1.EnvVar{Name: one(r, visible, visible, "NVIDIA_DRIVER_CAPABILITIES", "A"), Value: one(r, "all", "void", "none", "", "0,1", "GPU-1a", " void")}
		if r.IntN(6) == 0 {
			v.Value, v.ValueFrom = "", &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
		}
		return v
	})
	c.VolumeMounts = some(r, 2, func(int) corev1.VolumeMount {
		return corev1.VolumeMount{Name: "v", MountPath: one(r, "/data", "/dev", "/var/run/nvidia-container-devices/all", "/var/run/./nvidia-container-devices/1", "/nvidia")}
	})
	for range r.IntN(3) {
		if c.Resources.Limits == nil {
			c.Resources.Limits = corev1.ResourceList{}
		}
		name := one(r, "cpu", "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/mig-1g.5gb", "example.com/nic")
		c.Resources.Limits[corev1.ResourceName(name)] = resource.MustParse(one(r, "0", "1", "2k"))
	}
	if r.IntN(8) == 0 {
		c.Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	}
	if r.IntN(3) == 0 {
		c.SecurityContext = &corev1.SecurityContext{}
		if r.IntN(2) == 0 {
			c.SecurityContext.Privileged = ptr.To(r.IntN(2) == 0)
		}
	}
	return c
}

func randomPod(r *rand.Rand) *corev1.Pod {
	p := teamPod(randomContainer(r, "main"))
	p.Spec.Containers = append(p.Spec.Containers, some(r, 2, func(i int) corev1.Container { return randomContainer(r, fmt.Sprintf("c%d", i)) })...)
	p.Spec.InitContainers = some(r, 2, func(i int) corev1.Container { return randomContainer(r, fmt.Sprintf("i%d", i)) })
	p.Spec.Volumes = some(r, 3, func(i int) corev1.Volume {
		if r.IntN(3) == 0 {
			return corev1.Volume{Name: fmt.Sprintf("v%d", i)}
		}
		var steps []string
		for range r.IntN(4) {
			steps = append(steps, one(r, "dev", "dev", "nvidia0", "nvidiactl", "dri", "char", ".", "", "shm", "run", "nvidia-container-devices"))
		}
		return hostPath(fmt.Sprintf("v%d", i), "/"+strings.Join(steps, "/"))
	})
	for range r.IntN(3) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[one(r, "cdi.k8s.io/a", "nvidia.cdi.k8s.io/b", "a.b/cdi", "xcdi.k8s.io/a")] = one(r, "1", "2")
	}
	p.Spec.ServiceAccountName = one(r, "default", "default", "default", "dcgm")
	return p
}

// The oracle says in plain Go what docs/unasked.md says.

func namesDevices(v corev1.EnvVar) bool {
	if v.Name != visible {
		return false
	}
	switch v.Value {
	case "", "none", "void":
		return v.ValueFrom != nil
	}
	return true
}

func asks(c corev1.Container) bool {
	for name, amount := range c.Resources.Limits {
		known := strings.HasPrefix(string(name), "volcano.sh/vgpu-") || name == "nvidia.com/gpu" || strings.HasPrefix(string(name), "nvidia.com/mig-")
		if known && amount.Sign() != 0 {
			return true
		}
	}
	return len(c.Resources.Claims) > 0
}

func opensDevices(v corev1.Volume) bool {
	if v.HostPath == nil {
		return false
	}
	clean := path.Clean(v.HostPath.Path)
	if clean == "/" || clean == "/dev" || strings.Contains(clean, "nvidia-container-devices") {
		return true
	}
	below, in := strings.CutPrefix(clean, "/dev/")
	first, _, _ := strings.Cut(below, "/")
	return in && (strings.HasPrefix(first, "nvidia") || first == "dri" || first == "char")
}

// expected are the fields of a new pod that are refused, by what their messages begin with.
func expected(p *corev1.Pod) []string {
	if p.Spec.ServiceAccountName == "dcgm" {
		return nil
	}
	var naming, listing, privileged, volumes []string
	podAsks := false
	look := func(kind string, list []corev1.Container) {
		for _, c := range list {
			at := "spec." + kind + "[" + c.Name + "]"
			podAsks = podAsks || asks(c)
			if slices.ContainsFunc(c.Env, namesDevices) {
				naming = append(naming, at)
			}
			if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.Contains(m.MountPath, "nvidia-container-devices") }) {
				listing = append(listing, at)
			}
			if c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged {
				privileged = append(privileged, at)
			}
		}
	}
	look("containers", p.Spec.Containers)
	look("initContainers", p.Spec.InitContainers)
	for _, v := range p.Spec.Volumes {
		if opensDevices(v) {
			volumes = append(volumes, v.Name)
		}
	}
	var out []string
	add := func(begin string, of []string, end string) {
		if len(of) > 0 {
			out = append(out, begin+strings.Join(of, ", ")+end)
		}
	}
	add("", naming, ": env")
	add("", listing, ": volumeMounts")
	for key := range p.Annotations {
		if key == "cdi.k8s.io/a" || key == "nvidia.cdi.k8s.io/b" {
			out = append(out, "metadata.annotations[")
			break
		}
	}
	if !podAsks {
		add("spec.volumes[", volumes, "].hostPath")
		add("", privileged, ": securityContext.privileged")
	}
	return out
}

func TestThePolicyRefusesWhatTheOracleDoes(t *testing.T) {
	u := unasked(t, "deny")
	refused := 0
	for seed := range uint64(3000) {
		p := randomPod(rand.New(rand.NewPCG(seed, 42)))
		got, want := u.policy.refusals(t, creation(p)), expected(p)
		if len(got) != len(want) {
			t.Fatalf("seed %d: %s\nthe policy says %q\nthe oracle %q", seed, text(t, p), got, want)
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Fatalf("seed %d: %s\nthe policy says %q\nthe oracle %q", seed, text(t, p), got, want)
			}
		}
		if len(want) > 0 {
			refused++
		}
	}
	if refused < 500 || refused > 2800 {
		t.Errorf("%d of 3000 pods are refused: they are not mixed", refused)
	}
}

func text(t *testing.T, o any) string {
	t.Helper()
	out, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// What the API server lets in, after the webhook, gets no device from NVIDIA's runtime unasked.
func TestNoPodThatIsLetInNamesDevices(t *testing.T) {
	for _, name := range []webhook.Unasked{webhook.UnaskedVoid, webhook.UnaskedDeny} {
		u := unasked(t, string(name))
		s := webhook.NewSettings(config.DefaultDevice(), []string{"volcano"})
		s.Unasked, s.AskedBy = name, []string{"nvidia.com/gpu", "nvidia.com/mig-*"}
		in := 0
		for seed := range uint64(3000) {
			p := randomPod(rand.New(rand.NewPCG(seed, 43)))
			exempt := p.Spec.ServiceAccountName == "dcgm"
			called := isTrueOfAll(t, u.calls, creation(p))
			after := p
			if called {
				after = voided(t, p, s)
				if isTrueOfAll(t, u.calls, creation(after)) && !slices.ContainsFunc(slices.Concat(after.Spec.Containers, after.Spec.InitContainers),
					func(c corev1.Container) bool { return asks(c) || slices.ContainsFunc(c.Env, namesDevices) }) {
					t.Fatalf("seed %d: it is called again for %s", seed, text(t, after))
				}
			}
			refusals := u.policy.refusals(t, creation(after))
			if exempt {
				if called || len(refusals) > 0 {
					t.Fatalf("seed %d: the webhook is called, %v, or the policy refuses, %q, a pod that is exempt", seed, called, refusals)
				}
				continue
			}
			if name == webhook.UnaskedVoid && len(refusals) > 0 {
				t.Fatalf("seed %d: the webhook leaves %s\nwhich is refused: %q", seed, text(t, after), refusals)
			}
			if len(refusals) > 0 {
				continue
			}
			in++
			for _, c := range slices.Concat(after.Spec.Containers, after.Spec.InitContainers) {
				says := slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == visible })
				if slices.ContainsFunc(c.Env, namesDevices) || !asks(c) && !says {
					t.Fatalf("seed %d, policy %s: container %s of %s can get devices unasked", seed, name, c.Name, text(t, after))
				}
			}
		}
		if in < 50 {
			t.Errorf("policy %s: %d of 3000 pods are let in", name, in)
		}
	}
}

// voided is a pod after the webhook's answer.
func voided(t *testing.T, p *corev1.Pod, s webhook.Settings) *corev1.Pod {
	t.Helper()
	patch, _ := webhook.Void(p, s)
	if len(patch) == 0 {
		return p
	}
	decoded, err := jsonpatch.DecodePatch([]byte(text(t, patch)))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := decoded.Apply([]byte(text(t, p)))
	if err != nil {
		t.Fatal(err)
	}
	after := &corev1.Pod{}
	if err := json.Unmarshal(raw, after); err != nil {
		t.Fatal(err)
	}
	return after
}
