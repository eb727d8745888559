// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

// VolcanoNamespace is where Volcano's own chart is installed by default, and VolcanoScheduler the
// name of its Deployment there. The binary and the image's archive have that name too.
const (
	VolcanoNamespace = "volcano-system"
	VolcanoScheduler = "volcano-scheduler"
)

// volcanoTag is the tag of Volcano's images that its chart is told to use.
const volcanoTag = "sandbox"

// volcanoImage is what Volcano publishes as its scheduler's image: the program alone.
func volcanoImage(l layout) image {
	return image{Name: "docker.io/volcanosh/vc-scheduler:" + volcanoTag, Architecture: runtime.GOARCH, Entrypoint: []string{"/vc-scheduler"},
		Files: []imageFile{{Path: "tmp/", Mode: 0o1777}, {Path: "vc-scheduler", Source: l.bin(VolcanoScheduler), Mode: 0o755}}}
}

// volcanoKinds are the kinds of the scheduler's objects in Volcano's chart.
func volcanoKinds() map[string]schema.GroupVersionResource {
	kinds := accessKinds()
	kinds["ConfigMap"] = corev1.SchemeGroupVersion.WithResource("configmaps")
	kinds["Service"] = corev1.SchemeGroupVersion.WithResource("services")
	kinds["Deployment"] = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	return kinds
}

// installVolcanoScheduler creates what Volcano's own chart, which is in its module, has for its
// scheduler, and waits until that works. A process would not do: the in-tree device code finds the
// API server only as a pod does.
func (c *Cluster) installVolcanoScheduler(ctx context.Context) error {
	file, err := c.renderVolcanoScheduler(ctx)
	if err != nil {
		return fmt.Errorf("install Volcano's scheduler: %w", err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: VolcanoNamespace}}
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", VolcanoNamespace, err)
	}
	kinds := volcanoKinds()
	all, err := objects(file, kinds)
	if err != nil {
		return err
	}
	for _, o := range all {
		var to dynamic.ResourceInterface = c.dynamic.Resource(kinds[o.GetKind()])
		if o.GetNamespace() != "" {
			to = c.dynamic.Resource(kinds[o.GetKind()]).Namespace(o.GetNamespace())
		}
		if _, err := to.Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create %s %s of Volcano's chart: %w", o.GetKind(), o.GetName(), err)
		}
	}
	err = wait.PollUntilContextTimeout(ctx, pollEvery, startTimeout, true, func(ctx context.Context) (bool, error) {
		return c.askQueue(ctx) == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for Volcano's scheduler: %w", err)
	}
	return nil
}

// renderVolcanoScheduler writes the scheduler's objects of Volcano's chart into a file.
func (c *Cluster) renderVolcanoScheduler(ctx context.Context) (file string, err error) {
	values := c.layout.config("volcano-values.yaml")
	text := fmt.Sprintf("basic: {image_tag_version: %s, image_pull_policy: Never}\ncustom:\n  scheduler_schedule_period: %s\n  scheduler_config_override: |\n%s",
		volcanoTag, c.opts.SchedulePeriod, indent(c.opts.SchedulerConf, "    "))
	if err := os.WriteFile(values, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("write the values of Volcano's chart: %w", err)
	}
	chart := filepath.Join(c.volcanoModule, "installer/helm/chart/volcano")
	out, err := c.inside.run(ctx, nil, c.layout.bin("helm"), "template", "volcano", chart, "--namespace", VolcanoNamespace,
		"--values", values, "--show-only", "templates/scheduler.yaml")
	if err != nil {
		return "", err
	}
	file = c.layout.config("volcano-scheduler.yaml")
	return file, os.WriteFile(file, []byte(out), 0o644)
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+by) + "\n"
}
