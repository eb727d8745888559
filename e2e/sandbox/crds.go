// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
)

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// installCRDs creates all of Volcano's resource definitions, from the module that the scheduler is
// built from, and waits until they are served. A missing one would hang the scheduler's start.
func (c *Cluster) installCRDs(ctx context.Context) error {
	files, err := crdFiles(c.volcanoModule)
	if err != nil {
		return err
	}
	var names []string
	for _, f := range files {
		crd, err := readCRD(f)
		if err != nil {
			return err
		}
		_, err = c.dynamic.Resource(crds).Create(ctx, crd, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s: %w", crd.GetName(), err)
		}
		names = append(names, crd.GetName())
	}
	for _, name := range names {
		if err := c.waitEstablished(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// volcanoModule is the directory of Volcano's module, which go has in its module cache after Build.
func volcanoModule(ctx context.Context, repo string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "volcano.sh/volcano")
	cmd.Dir = repo
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find Volcano's module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// crdFiles lists the definitions in Volcano's module.
func crdFiles(module string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(module, "config/crd/*/bases/*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("find Volcano's resource definitions: none in %s (%w)", module, err)
	}
	return files, nil
}

func readCRD(path string) (*unstructured.Unstructured, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read resource definition: %w", err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &crd.Object); err != nil {
		return nil, fmt.Errorf("read resource definition %s: %w", path, err)
	}
	return crd, nil
}

// waitEstablished waits until the apiserver serves a definition.
func (c *Cluster) waitEstablished(ctx context.Context, name string) error {
	err := wait.PollUntilContextTimeout(ctx, pollEvery, startTimeout, true, func(ctx context.Context) (bool, error) {
		crd, err := c.dynamic.Resource(crds).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, nil // the apiserver may be slow; the timeout decides
		}
		return established(crd), nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s is served: %w", name, err)
	}
	return nil
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		m, ok := c.(map[string]any)
		if ok && m["type"] == "Established" && m["status"] == "True" {
			return true
		}
	}
	return false
}
