// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"deviceshare/plugins/admission/certificate"
)

// documents are the rendered objects as a tool reads them: with the fields that are written, and no
// others.
func documents(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, document := range strings.Split("\n"+text, "\n---") {
		if onlyComments(document) {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal(asJSON(t, document), &o.Object); err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

// A tool applies a rendering in one of two ways: on the server, as Flux does, and from what it
// applied before, as Argo CD and kubectl do.

func applyOnServer(t *testing.T, c client.Client, text string) {
	t.Helper()
	for _, o := range documents(t, text) {
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("tool"), client.ForceOwnership); err != nil {
			t.Fatalf("apply %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

func applyFromBefore(t *testing.T, c client.Client, before, text string) {
	t.Helper()
	old := map[string]*unstructured.Unstructured{}
	for _, o := range documents(t, before) {
		old[keyOf(o)] = o
	}
	for _, o := range documents(t, text) {
		current := stateOf(t, c, o)
		if current == nil || old[keyOf(o)] == nil {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
			}
			continue
		}
		typed, err := clientgoscheme.Scheme.New(o.GroupVersionKind())
		if err != nil {
			t.Fatal(err)
		}
		meta, err := strategicpatch.NewPatchMetaFromStruct(typed)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := strategicpatch.CreateThreeWayMergePatch(toJSON(t, old[keyOf(o)]), toJSON(t, o), toJSON(t, current), meta, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Patch(t.Context(), current, client.RawPatch("application/strategic-merge-patch+json", patch)); err != nil {
			t.Fatalf("patch %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

func keyOf(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

func toJSON(t *testing.T, o *unstructured.Unstructured) []byte {
	t.Helper()
	out, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// stateOf is an object in the cluster, without what each write changes; nil if it is not there.
func stateOf(t *testing.T, c client.Client, of *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(of.GroupVersionKind())
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(of), o); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	} else if err != nil {
		return nil
	}
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	return o
}

// live is what a cluster has after an installation: the Job has made the certificate and has had it
// trusted, people have made signing keys, and have edited the settings.
func live(t *testing.T, c client.Client) []*unstructured.Unstructured {
	t.Helper()
	job := certificate.Installer{Client: c, Secret: client.ObjectKey{Namespace: "deviceshare-system", Name: "deviceshare-webhook-serving"},
		Configurations: certificate.Configurations(true), Hosts: []string{"deviceshare-webhook.deviceshare-system.svc"},
		Clock: clock.RealClock{}, Log: logr.Discard()}
	if err := job.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	named := func(kind, namespace, name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
		o.SetNamespace(namespace)
		o.SetName(name)
		return o
	}
	people := map[*unstructured.Unstructured]map[string]any{
		named("Secret", "deviceshare-system", "deviceshare-signing-key"):     {"signing.key": "bWluZQ=="},
		named("ConfigMap", "deviceshare-system", "deviceshare-signing-keys"): {"keys.pem": "mine"},
		named("ConfigMap", "kube-system", "volcano-vgpu-device-config"):      {"device-config.yaml": "nvidia: {deviceSplitCount: 7}\n"},
		named("ConfigMap", "kube-system", "volcano-vgpu-node-config"):        {"config.json": "{}"},
	}
	for o, data := range people {
		err := c.Create(t.Context(), o.DeepCopy())
		if client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
		current := stateOf(t, c, o)
		if err := unstructured.SetNestedMap(current.Object, data, "data"); err != nil {
			t.Fatal(err)
		}
		if err := c.Update(t.Context(), current); err != nil {
			t.Fatal(err)
		}
	}
	return slices.Collect(maps.Keys(people))
}

// Whatever a sync finds that controllers and people have made or changed since the last one is the
// same after it. Without gitops.enabled it is not, which the test would see.
func TestASyncRevertsNothingThatHasChangedSince(t *testing.T) {
	for name, want := range map[string][]string{
		"gitops.enabled": nil,
		"without": {"ConfigMap deviceshare-system/deviceshare-signing-keys", "ConfigMap kube-system/volcano-vgpu-device-config",
			"ConfigMap kube-system/volcano-vgpu-node-config", "Secret deviceshare-system/deviceshare-signing-key"},
	} {
		v := values{"gitops.enabled": name == "gitops.enabled", "placements.signed": "require", "unaskedDevices.policy": "void", "view.page.enabled": true}
		first, second := render(t, v), render(t, v)
		for how, apply := range map[string]func(c client.Client, before, text string){
			"on the server":    func(c client.Client, _, text string) { applyOnServer(t, c, text) },
			"from what it was": func(c client.Client, before, text string) { applyFromBefore(t, c, before, text) },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				c := fake.NewClientBuilder().Build()
				apply(c, "", first)
				before := map[string]*unstructured.Unstructured{}
				for _, o := range append(live(t, c), documents(t, first)...) {
					before[keyOf(o)] = stateOf(t, c, o)
				}
				apply(c, first, second)
				var reverted []string
				for key, o := range before {
					if after := stateOf(t, c, o); after == nil || string(toJSON(t, after)) != string(toJSON(t, o)) {
						reverted = append(reverted, key)
					}
				}
				if slices.Sort(reverted); !slices.Equal(reverted, want) {
					t.Errorf("a sync reverts %q, want %q", reverted, want)
				}
				trusted := 0
				for _, o := range before {
					hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
					for _, h := range hooks {
						if bundle, _, _ := unstructured.NestedString(h.(map[string]any), "clientConfig", "caBundle"); bundle != "" {
							trusted++
						}
					}
				}
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "deviceshare-system", Name: "deviceshare-webhook-serving"}}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil || len(secret.Data["tls.key"]) == 0 || trusted != 4 {
					t.Errorf("%v: %d webhooks were trusted: the test loses what it is about", err, trusted)
				}
			})
		}
	}
}
