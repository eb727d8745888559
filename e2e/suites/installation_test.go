// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// TestInstalledCluster runs suites on what `helm install` made: the images, the chart, the real
// service accounts, security contexts, probes and mounts. The last suite uninstalls it.
func TestInstalledCluster(t *testing.T) {
	if os.Getenv("DEVICESHARE_E2E") == "" {
		t.Skip("needs root and a cluster: run `make test-e2e`")
	}
	start(t, sandbox.Options{Installed: true}).run(t, []suite{
		{"placement", testPlacement},
		{"isolation", testIsolation},
		{"waiting", testWaiting},
		{"webhook", testWebhook},
		{"identity", testIdentity},
		{"examples", testExamples},
		{"killed", testKilledInstallation},
		{"plugin_token", testPluginToken},
		{"rights", testRights},
		{"uninstall", testUninstall},
	})
}

// stays starts a pod that has most of its memory, and asks for more than its limit after the given
// time. It succeeds if that is refused.
func stays(ctx context.Context, t *testing.T, u *user.User, seconds int) {
	t.Helper()
	ask := workload.Ask{Number: 1, Memory: 1000}
	commands := []string{"alloc", "900", "expect", "ok", "hold", strconv.Itoa(seconds), "alloc", "200", "expect", "oom"}
	if err := u.Create(ctx, pod("stays").App("main", ask, commands...).Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitLog(ctx, "stays", "main", "hold"); err != nil {
		t.Fatal(err)
	}
}

// testKilledInstallation kills each part of the installed product. The kubelet starts it again, and
// pods that ran go on with the limits that they had.
func testKilledInstallation(t *testing.T, w *world) {
	ctx, u := w.user(t, "killed", 2*time.Minute)
	stays(ctx, t, u, 6)
	for _, component := range []string{sandbox.Scheduler, sandbox.Webhook, sandbox.DevicePlugin} {
		if err := w.cluster.Kill(component); err != nil {
			t.Fatal(err)
		}
		if err := w.cluster.WaitReady(ctx, component); err != nil {
			t.Fatal(err)
		}
	}
	succeeds(ctx, t, u, "stays")
	if !runs(ctx, t, u, "after") {
		t.Error("no pod runs after every part of the product was killed")
	}
}

// testUninstall uninstalls the chart under a running pod. Nothing of the product is left at the API
// server, and the pod goes on with its limit.
func testUninstall(t *testing.T, w *world) {
	ctx, u := w.user(t, "uninstall", 3*time.Minute)
	stays(ctx, t, u, 30)
	before := w.traces(ctx, t)
	if len(before) < 10 {
		t.Errorf("only %d objects and fields of an installed product are seen: %v", len(before), before)
	}
	began := time.Now()
	if out, err := w.cluster.Helm(ctx, "uninstall", sandbox.Release); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("helm uninstall took %.0f s; before it there were %d objects and fields of the product", time.Since(began).Seconds(), len(before))
	var left []string
	for ctx.Err() == nil { // pods and what belongs to deleted objects go a moment later
		if left = w.traces(ctx, t); len(left) == 0 {
			break
		}
		sleep(ctx, time.Second)
	}
	if len(left) > 0 {
		t.Errorf("left after the uninstall: %v", left)
	}
	succeeds(ctx, t, u, "stays")
}

// traces lists what the product has at the API server: objects of every kind that name it, and the
// node's annotations and amounts. Events and endpoints go by themselves; the namespace is the
// administrator's.
func (w *world) traces(ctx context.Context, t *testing.T) []string {
	t.Helper()
	var out []string
	config := w.cluster.RestConfig()
	config.WarningHandler = rest.NoWarnings{} // of kinds that are deprecated
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		for _, r := range list.APIResources {
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil || !slices.Contains(r.Verbs, "list") || slices.Contains([]string{"events", "namespaces", "nodes"}, r.Name) {
				continue
			}
			objects, err := client.Resource(gv.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				t.Fatalf("list %s: %v", r.Name, err)
			}
			for _, o := range objects.Items {
				if strings.Contains(o.GetName(), "deviceshare") || strings.HasPrefix(o.GetName(), "volcano-vgpu") {
					out = append(out, r.Name+" "+o.GetName())
				}
			}
		}
	}
	node, err := w.cluster.Client().CoreV1().Nodes().Get(ctx, sandbox.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name := range node.Annotations {
		if strings.HasPrefix(name, "volcano.sh/") {
			out = append(out, "annotation "+name)
		}
	}
	for name, amount := range node.Status.Allocatable {
		// The kubelet keeps the name of a device plugin that is gone, with nothing to give.
		if strings.HasPrefix(string(name), "volcano.sh/") && !(name == "volcano.sh/vgpu-number" && amount.IsZero()) {
			out = append(out, fmt.Sprintf("amount %s of %s", amount.String(), name))
		}
	}
	return out
}
