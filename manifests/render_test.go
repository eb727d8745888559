// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"
)

const installFile = "install/deviceshare.yaml"

const installHeader = `# SPDX-License-Identifier: Apache-2.0
#
# The chart of manifests/chart with its default values, for kubectl apply. Made by
#   go test ./manifests -run TestThePlainFileIsTheRenderedChart -update
`

var update = flag.Bool("update", false, "write install/deviceshare.yaml anew")

// files is .Files of a chart.
type files struct{ t *testing.T }

func (f files) Get(name string) string { return read(f.t, filepath.Join("chart", name)) }

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func values(t *testing.T) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.UnmarshalStrict([]byte(read(t, "chart/values.yaml")), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// set changes one value by its dotted path.
func set(v map[string]any, path string, value any) map[string]any {
	steps := strings.Split(path, ".")
	m := v
	for _, step := range steps[:len(steps)-1] {
		m = m[step].(map[string]any)
	}
	m[steps[len(steps)-1]] = value
	return v
}

// functions are those of Helm's that the chart uses. Helm itself is no
// dependency: the chart keeps to what is here, and a function that is not here
// fails the test.
func functions() template.FuncMap {
	pad := func(n int, text string) string {
		indent := strings.Repeat(" ", n)
		return indent + strings.ReplaceAll(text, "\n", "\n"+indent)
	}
	return template.FuncMap{
		"trim":    strings.TrimSpace,
		"nindent": func(n int, text string) string { return "\n" + pad(n, text) },
		"default": func(def, given any) any {
			if given == nil || given == "" {
				return def
			}
			return given
		},
		"toYaml": func(v any) (string, error) {
			text, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(text), "\n"), err
		},
	}
}

// order is that of the plain file: what others need comes first.
func order() []string {
	return []string{"namespace.yaml", "config.yaml", "scheduler-rbac.yaml", "scheduler.yaml", "device-plugin.yaml", "webhook.yaml"}
}

// render does what `helm template` does.
func render(t *testing.T, v map[string]any) string {
	t.Helper()
	var out bytes.Buffer
	for _, name := range order() {
		parsed, err := template.New(name).Funcs(functions()).Option("missingkey=error").Parse(read(t, "chart/templates/"+name))
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		data := map[string]any{"Values": v, "Files": files{t}, "Release": map[string]any{"Namespace": "deviceshare-system", "Name": "deviceshare"}}
		if err := parsed.Execute(&text, data); err != nil {
			t.Fatalf("render %s: %v", name, err)
		}
		body := strings.TrimSpace(strings.TrimPrefix(text.String(), "# SPDX-License-Identifier: Apache-2.0"))
		if body != "" {
			out.WriteString("---\n" + body + "\n")
		}
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestThePlainFileIsTheRenderedChart(t *testing.T) {
	want := installHeader + render(t, set(values(t), "createNamespace", true))
	if *update {
		if err := os.WriteFile(installFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, installFile) != want {
		t.Errorf("%s is not the rendered chart: run this test with -update", installFile)
	}
}

func TestEveryTemplateIsRendered(t *testing.T) {
	entries, err := fs.ReadDir(os.DirFS("chart/templates"), ".")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := order()
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("templates %q, rendered %q", names, want)
	}
}

// leaves are the dotted paths of all values that are not maps with keys.
func leaves(prefix string, v map[string]any) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(v)) {
		if m, ok := v[key].(map[string]any); ok && len(m) > 0 && key != "resources" {
			out = append(out, leaves(prefix+key+".", m)...)
			continue
		}
		out = append(out, prefix+key)
	}
	return out
}

func TestEveryValueIsUsed(t *testing.T) {
	var templates strings.Builder
	for _, name := range order() {
		templates.WriteString(read(t, "chart/templates/"+name))
	}
	for _, path := range leaves("", values(t)) {
		if !strings.Contains(templates.String(), ".Values."+path) {
			t.Errorf("%s does nothing", path)
		}
	}
}
