// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Release is the name under which the chart is installed.
const Release = "deviceshare"

// install does what docs/install.md says: it makes the namespace and installs the chart, unless
// that comes later. The images are there.
func (c *Cluster) install(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}}}
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", Namespace, err)
	}
	values, err := json.MarshalIndent(c.chartValues(), "", "  ")
	if err != nil {
		return fmt.Errorf("write the chart's values: %w", err)
	}
	if err := os.WriteFile(c.values(), values, 0o644); err != nil {
		return fmt.Errorf("write the chart's values: %w", err)
	}
	if c.opts.InstallLater {
		return nil
	}
	if _, err := c.Install(ctx); err != nil {
		return err
	}
	for _, w := range c.workloads() {
		if err := c.WaitReady(ctx, w.component); err != nil {
			return err
		}
	}
	return nil
}

// Install installs the release with the values that the sandbox needs, and what further arguments
// say.
func (c *Cluster) Install(ctx context.Context, args ...string) (string, error) {
	return c.Helm(ctx, append([]string{"install", Release, c.Chart(), "--values", c.values()}, args...)...)
}

// Upgrade upgrades the release with the values that it was installed with, and what further
// arguments say.
func (c *Cluster) Upgrade(ctx context.Context, args ...string) (string, error) {
	return c.Helm(ctx, append([]string{"upgrade", Release, c.Chart(), "--values", c.values()}, args...)...)
}

// Template renders the chart without the cluster, with the values that the release was installed
// with, and what further arguments say.
func (c *Cluster) Template(ctx context.Context, args ...string) (string, error) {
	return c.Helm(ctx, append([]string{"template", Release, c.Chart(), "--values", c.values()}, args...)...)
}

// Helm runs the real helm on the release's namespace and returns its output.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	args = append(args, "--namespace", Namespace, "--kubeconfig", c.layout.adminKubeconfig())
	// Its caches are for charts from elsewhere; nothing is left in a home directory.
	env := []string{"HELM_CACHE_HOME=" + c.layout.in("helm"), "HELM_CONFIG_HOME=" + c.layout.in("helm"), "HELM_DATA_HOME=" + c.layout.in("helm")}
	return c.inside.runFor(ctx, helmTimeout, env, c.layout.bin("helm"), args...)
}

// kubectlDeviceshare is the plugin of kubectl: its folder below cmd, and its program.
const kubectlDeviceshare = "kubectl-deviceshare"

// Deviceshare runs `kubectl deviceshare` as the administrator and returns its output.
func (c *Cluster) Deviceshare(ctx context.Context, args ...string) (string, error) {
	return c.inside.run(ctx, []string{"KUBECONFIG=" + c.layout.adminKubeconfig()}, c.layout.bin(kubectlDeviceshare), args...)
}

// DeviceshareCommand is `kubectl deviceshare` as the administrator, for a command that goes on
// until it is ended. It is not started.
func (c *Cluster) DeviceshareCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.layout.bin(kubectlDeviceshare), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.layout.adminKubeconfig())
	return cmd
}

// helmTimeout bounds one command of helm, which waits five minutes at most for each thing that it
// waits for.
const helmTimeout = 10 * time.Minute

// Chart is the folder of this working copy's chart, values the file of the values that it is
// installed with.
func (c *Cluster) Chart() string  { return filepath.Join(c.layout.repo, "manifests", "chart") }
func (c *Cluster) values() string { return c.layout.config("values.json") }

// chartValues differ from the defaults where the sandbox differs from a cluster of people: the
// driver is a fake one, and one replica of each does.
func (c *Cluster) chartValues() map[string]any {
	plugin := map[string]any{
		"driverRoot": driverRoot,
		"extraArgs":  c.opts.Args[DevicePlugin],
		// The fake driver makes the device files of partitions, which NVIDIA's makes through
		// nvidia-modprobe.
		"extraEnv": []map[string]string{{"name": "FAKEGPU_DEV", "value": "/dev"}},
	}
	scheduler := map[string]any{
		"replicas":  1,
		"config":    c.opts.SchedulerConf,
		"extraArgs": append([]string{"--schedule-period=" + c.opts.SchedulePeriod.String()}, c.opts.Args[Scheduler]...),
	}
	return map[string]any{
		"devicePlugin": plugin,
		"scheduler":    scheduler,
		"webhook":      map[string]any{"enabled": !c.opts.NoWebhook, "replicas": 1, "extraArgs": c.opts.Args[Webhook]},
	}
}

// workloads are the components that the chart installs.
func (c *Cluster) workloads() []workload {
	all := []workload{{c, Scheduler, c.askQueue}, {c, Keeper, nothingMore}, {c, DevicePlugin, c.askOffer}}
	if !c.opts.NoWebhook {
		all = append(all, workload{c, Webhook, c.askRegistered})
	}
	return all
}

// workload finds a component by name; false where it is none that the chart installs.
func (c *Cluster) workload(name string) (workload, bool) {
	if !c.opts.Installed {
		return workload{}, false
	}
	for _, w := range c.workloads() {
		if w.component == name {
			return w, true
		}
	}
	return workload{}, false
}

// TagProduct gives the product's images a further tag, as a registry has a later version. What they
// hold is the same.
func (c *Cluster) TagProduct(ctx context.Context, tag string) error {
	names, err := c.ctr(ctx, "images", "list", "--quiet")
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	for _, product := range productImages() {
		repository := runtimeName("deviceshare/"+product) + ":"
		i := strings.Index(names, repository)
		if i < 0 {
			return fmt.Errorf("tag the image of the %s: it is not there, only\n%s", product, names)
		}
		from, _, _ := strings.Cut(names[i:], "\n")
		if _, err := c.ctr(ctx, "images", "tag", "--force", from, repository+tag); err != nil {
			return fmt.Errorf("tag the image of the %s: %w", product, err)
		}
	}
	return nil
}

// nothingMore is asked of a component that is ready when its pods are.
func nothingMore(context.Context) error { return nil }

// productImages are the names of the images that the chart uses, without deviceshare/.
func productImages() []string { return []string{Scheduler, DevicePlugin, Webhook, pageImage} }

// pageImage is the image of the page, which the chart installs where it is asked for.
const pageImage = "view"
