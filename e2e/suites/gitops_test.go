// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// argoCD is the name by which Argo CD applies on the server.
const argoCD = "argocd-controller"

// testGitops has the product applied from renderings of the chart, as Argo CD does, over what helm
// has installed.
func testGitops(t *testing.T, w *world) {
	t.Run("synced_again", w.aSyncUndoesNothing)
	t.Run("second_scheduler", w.staysAwayFromASecondScheduler)
}

// aSyncUndoesNothing syncs, lets people edit what docs/gitops.md leaves to them, and syncs another
// rendering.
func (w *world) aSyncUndoesNothing(t *testing.T) {
	ctx, u := w.user(t, "gitops", 8*time.Minute)
	t.Cleanup(func() { w.offerEverything(t) })
	running(ctx, t, u, pod("began").App("main", workload.Ask{Number: 1, Memory: 1000}, "alloc", "900", "expect", "ok", "forever").Build())
	began, err := u.Get(ctx, "began")
	if err != nil {
		t.Fatal(err)
	}
	s := &signatures{w: w, u: u, key: w.makeSigningKey(ctx, t)}
	first, second := w.renderForGit(ctx, t), w.renderForGit(ctx, t)
	if first != second {
		t.Error("two renderings of the chart differ")
	}
	w.sync(ctx, t, first)
	w.awaitRollout(ctx, t)
	key := s.arrives(ctx, t, "synced-once")

	w.editAsPeople(ctx, t, u)
	before, modes, pods := w.stateOf(ctx, t, first), w.modes(ctx, t), w.productPods(ctx, t)
	w.sync(ctx, t, second)
	if again := s.arrives(ctx, t, "synced-again"); again != key || key != wire.KeyIDOf(s.key.Public().(ed25519.PublicKey)) {
		t.Errorf("placements are signed with the key %s, then with %s", key, again)
	}
	w.awaitRollout(ctx, t)
	for name, text := range w.stateOf(ctx, t, first) {
		if text != before[name] {
			t.Errorf("a sync has changed %s:\n%s", name, difference(strings.Split(before[name], "\n"), strings.Split(text, "\n")))
		}
	}
	if after := w.modes(ctx, t); !maps.Equal(after, modes) {
		t.Errorf("the devices are in the modes %v, and were in %v", after, modes)
	}
	if after := w.productPods(ctx, t); !slices.Equal(after, pods) {
		t.Errorf("the product's pods are %q, and were %q", after, pods)
	}
	after, err := u.Get(ctx, "began")
	if err != nil || after.Status.ContainerStatuses[0].ContainerID != began.Status.ContainerStatuses[0].ContainerID || after.Status.ContainerStatuses[0].State.Running == nil {
		t.Errorf("the pod that ran does so no more: %+v, %v", after.Status, err)
	}
}

// renderForGit is the chart as a tool renders it from Git.
func (w *world) renderForGit(ctx context.Context, t *testing.T) string {
	t.Helper()
	out, err := w.cluster.Template(ctx, "--set", "gitops.enabled=true,placements.signed=sign")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sync applies a rendering on the server, and takes every field of it from who has it.
func (w *world) sync(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	resources, yes := w.resources(t), true
	for _, object := range objects(t, []byte(text)) {
		data, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := resources(object).Patch(ctx, object.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: argoCD, Force: &yes}); err != nil {
			t.Fatalf("apply %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// makeSigningKey makes the key and its public half by the steps of docs/signatures.md.
func (w *world) makeSigningKey(ctx context.Context, t *testing.T) ed25519.PrivateKey {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	core := w.cluster.Client().CoreV1()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: signingSecret}, Data: map[string][]byte{"signing.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})}}
	if _, err := core.Secrets(sandbox.Namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	keys := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: signingKeys}, Data: map[string]string{"signing.pem": publicKeyPEM(t, public)}}
	if _, err := core.ConfigMaps(sandbox.Namespace).Create(ctx, keys, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return private
}

// editAsPeople edits both ConfigMaps, as kubectl edit does, and waits until a device that nobody
// uses is in the mode that they say.
func (w *world) editAsPeople(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	busy := deviceOf(ctx, t, u, "began")
	inv := w.inventory(ctx, t)
	i := slices.IndexFunc(inv.Devices, func(d sharing.Device) bool { return d.ID != busy && d.Mode == sharing.HAMiCore })
	if i < 0 {
		t.Fatalf("no device to edit: %+v", inv.Devices)
	}
	if err := u.ConfigureDevices(ctx, "nvidia: {deviceSplitCount: 7}"); err != nil {
		t.Fatal(err)
	}
	edited := fmt.Sprintf(`{"nodeconfig":[{"name":%q,"devices":[{"index":%d,"mode":"time-slicing"}]}]}`, sandbox.NodeName, inv.Devices[i].Index)
	if err := u.ConfigureNodes(ctx, edited); err != nil {
		t.Fatal(err)
	}
	askUntil(ctx, t, "the device to be in its mode", func() (bool, error) {
		mode := w.modes(ctx, t)[inv.Devices[i].ID]
		return mode == sharing.TimeSlicing, fmt.Errorf("it is in mode %s", mode)
	})
}

// modes are those of the devices.
func (w *world) modes(ctx context.Context, t *testing.T) map[sharing.DeviceID]sharing.Mode {
	t.Helper()
	out := map[sharing.DeviceID]sharing.Mode{}
	for _, d := range w.inventory(ctx, t).Devices {
		out[d.ID] = d.Mode
	}
	return out
}

// stateOf are the objects of a rendering, and those that people make, as they are in the cluster:
// without what says how they do, and who wrote them.
func (w *world) stateOf(ctx context.Context, t *testing.T, text string) map[string]string {
	t.Helper()
	resources, all := w.resources(t), objects(t, []byte(text))
	for _, line := range []string{"Secret " + sandbox.Namespace + " " + signingSecret, "ConfigMap " + sandbox.Namespace + " " + signingKeys,
		"ConfigMap " + user.ConfigNamespace + " volcano-vgpu-device-config", "ConfigMap " + user.ConfigNamespace + " volcano-vgpu-node-config"} {
		words, o := strings.Fields(line), &unstructured.Unstructured{Object: map[string]any{}}
		o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(words[0]))
		o.SetNamespace(words[1])
		o.SetName(words[2])
		all = append(all, o)
	}
	out := map[string]string{}
	for _, o := range all {
		current, err := resources(o).Get(ctx, o.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatalf("get %s %s: %v", o.GetKind(), o.GetName(), err)
		}
		current.SetManagedFields(nil)
		current.SetResourceVersion("")
		delete(current.Object, "status")
		if o.GetKind() == "Lease" {
			delete(current.Object, "spec") // which its holder renews
		}
		text, err := current.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		out[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = strings.ReplaceAll(string(text), `,"`, ",\n\"")
	}
	return out
}

// productPods are the pods of the product's workloads, with how often their containers were started
// again.
func (w *world) productPods(ctx context.Context, t *testing.T) []string {
	t.Helper()
	list, err := w.cluster.Client().CoreV1().Pods(sandbox.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=deviceshare"})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		p := &list.Items[i]
		if slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Job" }) {
			continue
		}
		for _, c := range p.Status.ContainerStatuses {
			out = append(out, fmt.Sprintf("%s %s %d", p.Name, c.Name, c.RestartCount))
		}
	}
	slices.Sort(out)
	return out
}

// awaitRollout waits until every workload of the product has the pods that it is to have.
func (w *world) awaitRollout(ctx context.Context, t *testing.T) {
	t.Helper()
	apps := w.cluster.Client().AppsV1()
	askUntil(ctx, t, "the product's workloads to be rolled out", func() (bool, error) {
		deployments, err := apps.Deployments(sandbox.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, d := range deployments.Items {
			s, want := d.Status, *d.Spec.Replicas
			if s.ObservedGeneration < d.Generation || s.Replicas != want || s.UpdatedReplicas != want || s.AvailableReplicas != want {
				return false, fmt.Errorf("deployment %s: %+v", d.Name, s)
			}
		}
		sets, err := apps.DaemonSets(sandbox.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, d := range sets.Items {
			s, onDelete := d.Status, d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
			if s.ObservedGeneration < d.Generation || s.NumberReady != s.DesiredNumberScheduled || !onDelete && s.UpdatedNumberScheduled != s.DesiredNumberScheduled {
				return false, fmt.Errorf("daemon set %s: %+v", d.Name, s)
			}
		}
		return true, nil
	})
}
