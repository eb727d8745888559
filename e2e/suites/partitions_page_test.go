// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing/wire"
)

// Every example of docs/mig.md is used as it stands: pods are created, geometries
// are written into the ConfigMap, and a pod runs in a partition under each.
func testMIGPage(t *testing.T, w *world) {
	ctx, u := w.user(t, "mig-page", 4*time.Minute)
	t.Cleanup(func() { w.defaultSettings(t, u) })
	page, err := os.ReadFile("../../docs/mig.md")
	if err != nil {
		t.Fatal(err)
	}
	pods, edits := 0, 0
	for _, part := range strings.Split(string(page), "```yaml\n")[1:] {
		text, _, _ := strings.Cut(part, "```")
		if strings.HasPrefix(text, "nvidia:") {
			edits++
			w.usedAsItStands(ctx, t, u, fmt.Sprintf("edit-%d", edits), text)
			continue
		}
		pods++
		w.runAsItStands(ctx, t, u, text)
	}
	if pods < 1 || edits < 3 {
		t.Errorf("found %d pods and %d geometries on the page: it is not where this suite looks", pods, edits)
	}
}

// runAsItStands creates a pod of the page, with an image that exists here.
func (w *world) runAsItStands(ctx context.Context, t *testing.T, u *user.User, text string) {
	t.Helper()
	var p corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.Image, c.ImagePullPolicy = sandbox.ImageCUDAClient, corev1.PullNever
		c.Command = []string{"/usr/bin/cudaclient", "info", "env", "forever"}
	}
	p.Annotations[wire.UserUseModels] = "A100" // which is what the page speaks of
	got := started(ctx, t, u, workload.New(p.Name, sandbox.ImageCUDAClient).Edit(func(made *corev1.Pod) { *made = p }))
	if _, err := w.located(ctx, u, got); err != nil {
		t.Error(err)
	}
	if profile := partitionOf(t, got).Partition.Profile; profile != "2g.20gb" {
		t.Errorf("pod %s got a %s, the page says 2g.20gb", p.Name, profile)
	}
	if err := u.Delete(ctx, p.Name); err != nil {
		t.Fatal(err)
	}
}

// usedAsItStands writes geometries of the page, waits until they are in force, and
// runs a pod on each kind of device under them.
func (w *world) usedAsItStands(ctx context.Context, t *testing.T, u *user.User, name, text string) {
	t.Helper()
	before := w.inForce(ctx, t)
	if err := u.ConfigureDevices(ctx, text); err != nil {
		t.Fatal(err)
	}
	for w.inForce(ctx, t) == before {
		if sleep(ctx, 50*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("%s is not in force: %v\n%s", name, ctx.Err(), text)
		}
	}
	inv := w.inventory(ctx, t)
	models := []string{"A100", "A30"}
	for _, model := range models {
		if err := u.Create(ctx, ask(name+"-"+strings.ToLower(model), 5500).Annotate(wire.UserUseModels, model).Build()); err != nil {
			t.Fatal(err)
		}
	}
	for _, model := range models {
		p := begun(ctx, t, u, name+"-"+strings.ToLower(model))
		if _, err := w.located(ctx, u, p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		share := partitionOf(t, p)
		d, _ := inv.Device(share.Device)
		var groups []string
		for i := range d.MIG.Geometries {
			groups = append(groups, d.MIG.Geometries[i].Name)
		}
		t.Logf("%s: 5500 MiB of an %s are %s of %s; allowed are %q", name, model, share.Partition.Profile, share.Partition.Geometry, groups)
		if len(groups) > 0 && !slices.Contains(groups, share.Partition.Geometry) {
			t.Errorf("%s: geometry %s is none of the device's", name, share.Partition.Geometry)
		}
	}
	if err := u.DeleteAll(ctx); err != nil {
		t.Fatal(err)
	}
}

// inForce is what the real node says about the configuration it applies.
func (w *world) inForce(ctx context.Context, t *testing.T) string {
	t.Helper()
	node, err := w.cluster.Client().CoreV1().Nodes().Get(ctx, sandbox.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node.Annotations[wire.NodeConfig]
}
