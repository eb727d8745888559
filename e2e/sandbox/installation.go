// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Release is the name under which the chart is installed.
const Release = "deviceshare"

// install does what manifests/README.md says: it makes the namespace and installs the chart. The images are there.
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
	if err := os.WriteFile(c.ValuesFile(), values, 0o644); err != nil {
		return fmt.Errorf("write the chart's values: %w", err)
	}
	if _, err := c.Helm(ctx, "install", Release, c.ChartDir(), "--values", c.ValuesFile()); err != nil {
		return err
	}
	for _, w := range c.workloads() {
		if err := c.WaitReady(ctx, w.component); err != nil {
			return err
		}
	}
	return nil
}

// Helm runs the real helm on the release's namespace and returns its output.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	args = append(args, "--namespace", Namespace, "--kubeconfig", c.layout.adminKubeconfig())
	// Its caches are for charts from elsewhere; nothing is left in a home directory.
	env := []string{"HELM_CACHE_HOME=" + c.layout.in("helm"), "HELM_CONFIG_HOME=" + c.layout.in("helm"), "HELM_DATA_HOME=" + c.layout.in("helm")}
	return c.inside.run(ctx, env, c.layout.bin("helm"), args...)
}

// ChartDir is the chart of this working copy, ValuesFile the values with which Start installed it.
func (c *Cluster) ChartDir() string   { return filepath.Join(c.layout.repo, "manifests", "chart") }
func (c *Cluster) ValuesFile() string { return c.layout.config("values.json") }

// chartValues differ from the defaults where the sandbox differs from a cluster of people: the driver is a fake one, and
// one replica of each does.
func (c *Cluster) chartValues() map[string]any {
	plugin := map[string]any{
		"driverRoot":  driverRoot,
		"cdiHookPath": c.layout.bin(cdiHook),
		"extraArgs":   c.opts.Args[DevicePlugin],
		// The fake driver makes the device files of partitions, which NVIDIA's makes through nvidia-modprobe.
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
	all := []workload{{c, Scheduler, c.askQueue}, {c, DevicePlugin, c.askOffer}}
	if !c.opts.NoWebhook {
		all = append(all, workload{c, Webhook, c.askAuthority})
	}
	return all
}

// workload returns an installed component; ok is false where it runs as a process, or not at all.
func (c *Cluster) workload(name string) (w workload, ok bool) {
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

// askAuthority is satisfied when the API server knows how to trust the webhook, which fails open before.
func (c *Cluster) askAuthority(ctx context.Context) error {
	config, err := c.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, Release, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, w := range config.Webhooks {
		if len(w.ClientConfig.CABundle) == 0 {
			return fmt.Errorf("webhook %s has no authority yet", w.Name)
		}
	}
	return nil
}

// importProduct loads the product's images into containerd.
func (c *Cluster) importProduct(ctx context.Context) error {
	for _, name := range productImages() {
		archive := filepath.Join(c.layout.repo, ".sandbox", "images", name+".tar")
		if _, err := c.ctr(ctx, "images", "import", "--local", archive); err != nil {
			return fmt.Errorf("import the image of the %s: %w", name, err)
		}
	}
	return nil
}

// productImages are the names of the images that the chart uses, without deviceshare/.
func productImages() []string { return []string{Scheduler, DevicePlugin, Webhook} }

// cdiHook is NVIDIA's program that containers' CDI hooks start. It belongs to the container toolkit on the host.
const cdiHook = "nvidia-cdi-hook"
