// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"deviceshare/e2e/helm"
)

// built is the real helm, built once.
var built = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	return helm.Build(ctx, "..", func(line string) { fmt.Fprintln(os.Stderr, line) })
})

// values are settings by their dotted paths, as --set takes them, but of any type.
type values map[string]any

// text is the values file that they make.
func (v values) text(t *testing.T) string {
	t.Helper()
	tree := map[string]any{}
	for path, value := range v {
		steps, m := strings.Split(path, "."), tree
		for _, step := range steps[:len(steps)-1] {
			if m[step] == nil {
				m[step] = map[string]any{}
			}
			m = m[step].(map[string]any)
		}
		m[steps[len(steps)-1]] = value
	}
	out, err := yaml.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// runHelm runs helm with values and returns what it prints, or its complaint as an error. It
// knows no cluster but one that is named in args.
func runHelm(t *testing.T, v values, args ...string) (string, error) {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), path, append(args, "--values=-")...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG=/dev/null")
	cmd.Stdin = strings.NewReader(v.text(t))
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), errors.New(complaint.String() + out.String())
	}
	return out.String(), nil
}

// template is `helm template` of the release that the README installs.
func template(t *testing.T, v values) (string, error) {
	t.Helper()
	return runHelm(t, v, "template", "deviceshare", "chart", "--namespace=deviceshare-system")
}

// render is template of values that the chart accepts.
func render(t *testing.T, v values) string {
	t.Helper()
	out, err := template(t, v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
