// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"deviceshare/e2e/report"
	"deviceshare/e2e/sandbox"
	"deviceshare/sharing/wire"
)

// testUninstall uninstalls the chart under a running pod, while devices are in every mode. Nothing
// of the product is left at the API server, and on the node only what the running pod works with,
// which goes on with its limit.
func testUninstall(t *testing.T, w *world) {
	ctx, u := w.user(t, "uninstall", 4*time.Minute)
	w.hasUsualDevices(ctx, t)
	w.enterManyModes(ctx, t, u)
	// People left something behind.
	w.patchNode(ctx, t, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:"2020-01-01T00:00:00Z"}}}`,
		wire.NodeCordon, `{"version":1,"devices":{"GPU-gone":{"reason":"swapped"}}}`, wire.NodeReleaseDriver))
	stays(ctx, t, u, 30)
	if !runs(ctx, t, u, "gone") {
		t.Fatal("no pod runs")
	}
	before, onNode := w.traces(ctx, t), w.nodeTraces(ctx, t)
	if len(before) < 10 || len(onNode) < 10 {
		t.Errorf("only %d objects and fields, and %d things on the node, of an installed product are seen: %q, %q",
			len(before), len(onNode), before, onNode)
	}
	began := time.Now()
	if out, err := w.cluster.Helm(ctx, "uninstall", sandbox.Release); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("helm uninstall took %.0f s", time.Since(began).Seconds())
	var left []string
	for ctx.Err() == nil { // pods and what belongs to deleted objects go a moment later
		if left = w.traces(ctx, t); len(left) == 0 {
			break
		}
		sleep(ctx, time.Second)
	}
	if len(left) > 0 {
		t.Errorf("left at the API server after the uninstall: %q", left)
	}
	t.Logf("at the API server:\n%s", difference(before, left))
	after := w.nodeTraces(ctx, t)
	t.Logf("on the node:\n%s", difference(onNode, after))
	for _, line := range after {
		if !slices.ContainsFunc(staysOnNode(), func(r *regexp.Regexp) bool { return r.MatchString(line) }) {
			t.Errorf("left on the node after the uninstall: %s", line)
		}
	}
	succeeds(ctx, t, u, "stays")
}

// hasUsualDevices gives the node the devices of topology, if a suite before has given it others.
func (w *world) hasUsualDevices(ctx context.Context, t *testing.T) {
	t.Helper()
	if len(w.inventory(ctx, t).Devices) == gpus {
		return
	}
	if err := w.cluster.SwapGPUs(ctx, topology()); err != nil {
		t.Fatal(err)
	}
}

// staysOnNode are the things that docs/operate.md says an uninstall leaves: the libraries, the
// state of containers that run, and the CDI specifications of one.
func staysOnNode() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`^file /usr/local/vgpu/`),
		regexp.MustCompile(`^file /var/lib/deviceshare/`),
		regexp.MustCompile(`^file /run/cdi/volcano.sh-(vgpu-[^/]*|driver.json)$`),
		regexp.MustCompile(`^file /var/lib/kubelet/device-plugins/(kubelet_internal_checkpoint|kubelet.sock|DEPRECATION)`),
	}
}

// difference shows which lines went and came, as diff does.
func difference(before, after []string) string {
	var out strings.Builder
	for _, line := range before {
		if !slices.Contains(after, line) {
			fmt.Fprintf(&out, "- %s\n", line)
		}
	}
	for _, line := range after {
		sign := "+"
		if slices.Contains(before, line) {
			sign = " "
		}
		fmt.Fprintf(&out, "%s %s\n", sign, line)
	}
	return out.String()
}

// lookAtNode prints what the product may leave on a node: files, mounts, processes, and devices in
// another state than that of a machine without it.
const lookAtNode = `
for d in /run/cdi /var/lib/deviceshare /usr/local/vgpu /run/nvidia/mps /var/lib/kubelet/device-plugins; do
	find "$d" -mindepth 1 -printf 'file %p\n'
done
awk '$5 ~ "^/(run/nvidia/mps|run/cdi|var/lib/deviceshare|usr/local/vgpu)/" { print "mount " $5 }' /proc/self/mountinfo
for p in /proc/[0-9]*; do
	tr '\0' ' ' < "$p/cmdline" | grep -oE '^[^ ]*(deviceshare|nvidia-cuda-mps)[^ ]*( [a-z-]+)?' | sed 's/^/process /'
done
true
`

// nodeTraces lists what the product has on the real node.
func (w *world) nodeTraces(ctx context.Context, t *testing.T) []string {
	t.Helper()
	out, err := w.cluster.Run(ctx, "sh", "-c", lookAtNode)
	if err != nil {
		t.Fatal(err)
	}
	show, err := w.cluster.FakeGPU(ctx, "show")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(show) {
		if mode := report.Value(line, "mig"); strings.HasPrefix(line, "device ") && mode == "on" {
			out += "device " + report.Value(line, "index") + " is in mode mig\n"
		}
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines)
	return slices.Compact(lines)
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
