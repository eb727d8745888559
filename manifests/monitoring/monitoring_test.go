// SPDX-License-Identifier: Apache-2.0

// Package monitoring_test tries what the chart gives Prometheus and Grafana: the rules, aliases and
// dashboards in manifests/chart/files.
package monitoring_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"deviceshare/e2e/prometheus"
)

const chart = "../chart/files"

// rule is a recording rule, an alias or an alert, as Prometheus reads it.
type rule struct {
	Record      string            `json:"record"`
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// readRules reads all rules of a file of the chart.
func readRules(t *testing.T, name string) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	readFile(t, name, &file)
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rules", name)
	}
	return all
}

// readAlerts reads the alerts of the chart.
func readAlerts(t *testing.T) []rule {
	t.Helper()
	alerts := slices.DeleteFunc(readRules(t, "rules.yaml"), func(r rule) bool { return r.Alert == "" })
	if len(alerts) == 0 {
		t.Fatal("there are no alerts")
	}
	return alerts
}

// board is a dashboard, as Grafana reads it.
type board struct {
	name       string // of its file
	Templating struct{ List []struct{ Name string } }
	Panels     []struct {
		ID      int
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ RefID, Expr, LegendFormat string }
	}
}

// readBoards reads the dashboards of the chart.
func readBoards(t *testing.T) []board {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chart, "dashboards", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	var boards []board
	for _, path := range files {
		b := board{name: strings.TrimSuffix(filepath.Base(path), ".json")}
		readFile(t, filepath.Join("dashboards", filepath.Base(path)), &b)
		boards = append(boards, b)
	}
	return boards
}

// readFile reads YAML or JSON of the chart.
func readFile(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, name))
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// tools installs promtool.
func tools(t *testing.T) prometheus.Tools {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	found, err := prometheus.Install(ctx, "../..")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// tried runs promtool's tests of the alerts on rules.
func tried(t *testing.T, p prometheus.Tools, rules []byte) error {
	t.Helper()
	dir := t.TempDir()
	tests, err := os.ReadFile("testdata/alerts.yaml")
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "rules.yaml"), rules, 0o600), os.WriteFile(filepath.Join(dir, "tests.yaml"), tests, 0o600)); err != nil {
		t.Fatal(err)
	}
	return p.Check(t.Context(), dir, nil, "test", "rules", "tests.yaml")
}

func TestAlertsFireWhenTheyShouldAndNotBefore(t *testing.T) {
	p := tools(t)
	rules, err := os.ReadFile(filepath.Join(chart, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(t.Context(), chart, nil, "check", "rules", "rules.yaml"); err != nil {
		t.Error(err)
	}
	if err := tried(t, p, rules); err != nil {
		t.Error(err)
	}
}

func TestAliasesHaveTheLabelsAndUnitsOfTheirMakers(t *testing.T) { tryRecords(t, "aliases.yaml") }

func TestCountersOfDevicesAreDividedByWhoKeepsThemBusy(t *testing.T) { tryRecords(t, "dcgm.yaml") }

// tryRecords runs the promtool tests of the rules of a file that has no alerts.
func tryRecords(t *testing.T, name string) {
	p, dir := tools(t), t.TempDir()
	for from, to := range map[string]string{filepath.Join(chart, name): name, filepath.Join("testdata", name): "tests.yaml"} {
		text, err := os.ReadFile(from)
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, to), text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Check(t.Context(), dir, nil, "check", "rules", name); err != nil {
		t.Error(err)
	}
	if err := p.Check(t.Context(), dir, nil, "test", "rules", "tests.yaml"); err != nil {
		t.Error(err)
	}
}

// A test of an alert wants all alerts that fire and no others. So one that never fires is noticed
// where it is wanted, and one that always does everywhere else.
func TestTheTestsOfTheAlertsNoticeEveryAlert(t *testing.T) {
	text, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range readAlerts(t) {
		if !strings.Contains(string(text), `{labels: 'ALERTS{alertname="`+a.Alert+`",alertstate="firing"`) {
			t.Errorf("no test wants %s to fire", a.Alert)
		}
	}
	rules, err := os.ReadFile(filepath.Join(chart, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p := tools(t)
	for _, broken := range []string{"vector(1) > 2", "vector(1)"} {
		if err := tried(t, p, with(t, rules, "DeviceshareEditedPods", broken)); err == nil || !strings.Contains(err.Error(), "DeviceshareEditedPods") {
			t.Errorf("no test notices that an alert is %s: %v", broken, err)
		}
	}
}

// with gives an alert another query.
func with(t *testing.T, rules []byte, alert, query string) []byte {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string           `json:"name"`
			Rules []map[string]any `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(rules, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r["alert"] == alert {
				r["expr"] = query
			}
		}
	}
	out, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// readQueries reads all queries of rules and panels, by where they stand.
func readQueries(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, r := range slices.Concat(readRules(t, "rules.yaml"), readRules(t, "aliases.yaml"), readRules(t, "dcgm.yaml")) {
		all[cmp.Or(r.Record, r.Alert)] = r.Expr
	}
	for _, b := range readBoards(t) {
		for _, p := range b.Panels {
			for _, l := range p.Targets {
				all[b.name+"/"+p.Title+"/"+l.LegendFormat] = l.Expr
			}
		}
	}
	return all
}

// Names are looked for in the sources that define them; some stand there without the part that
// several have in common.
func TestQueriesAskForMetricsThatThereAre(t *testing.T) {
	var sources strings.Builder
	for _, path := range []string{"deviceplugin/metrics/metrics.go", "deviceplugin/metrics/devices.go", "deviceplugin/metrics/containers.go",
		"plugins/deviceshare/metrics/metrics.go", "plugins/schedulerconf/guard.go", "cmd/deviceshare-webhook/parts.go"} {
		text, err := os.ReadFile("../../" + path)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(text)
	}
	recorded := map[string]bool{}
	for _, r := range slices.Concat(readRules(t, "rules.yaml"), readRules(t, "dcgm.yaml")) {
		recorded[r.Record] = true
	}
	metric := regexp.MustCompile(`([a-z]+:)?deviceshare_[a-z_]+(:[a-z0-9]+)?`)
	part := regexp.MustCompile(`^deviceshare_(node_device_|node_partition_|node_|container_)?`)
	for where, query := range readQueries(t) {
		names := metric.FindAllString(query, -1)
		if len(names) == 0 {
			t.Errorf("%s asks for nothing of ours: %s", where, query)
		}
		for _, name := range names {
			whole := strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
			parts := []string{whole, strings.TrimPrefix(whole, "deviceshare_"), strings.TrimPrefix(whole, "deviceshare_node_"), part.ReplaceAllString(whole, "")}
			known := slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(sources.String(), `"`+p+`"`) })
			if !known && !recorded[name] {
				t.Errorf("%s asks for %s, which nobody has", where, name)
			}
		}
	}
}

func TestEveryAlertAndDashboardIsExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	alerts := readAlerts(t)
	for _, a := range alerts {
		severity := a.Labels["severity"]
		if names[a.Alert] = true; !strings.Contains(string(page), "| `"+a.Alert+"` | "+severity+" |") {
			t.Errorf("the page does not explain alert %s with severity %s", a.Alert, severity)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, severity) {
			t.Errorf("alert %s has severity %q", a.Alert, severity)
		}
		if !strings.HasPrefix(a.Alert, "Deviceshare") && !strings.HasPrefix(a.Alert, "Devices") ||
			a.Annotations["summary"] == "" || a.Annotations["description"] == "" || a.Annotations["documentation"] != "docs/metrics.md" {
			t.Errorf("alert %s lacks a text: %+v", a.Alert, a)
		}
	}
	for _, name := range regexp.MustCompile("\\| `(Device[A-Za-z]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		if !names[name[1]] {
			t.Errorf("the page explains %s, which is no alert", name[1])
		}
	}
	for _, b := range readBoards(t) {
		if !strings.Contains(string(page), "| "+b.name+" |") {
			t.Errorf("the page does not explain dashboard %s", b.name)
		}
	}
	if len(names) != len(alerts) {
		t.Errorf("alerts with one name: %v", slices.Sorted(maps.Keys(names)))
	}
}

// Grafana shows the panels of a board only if it is well-formed: each at its own place, each query
// with a name of its own.
func TestDashboardsAreWellFormed(t *testing.T) {
	for _, b := range readBoards(t) {
		places, variables := map[[2]int]bool{}, map[string]bool{}
		for _, v := range b.Templating.List {
			variables["$"+v.Name] = true
		}
		for _, p := range b.Panels {
			at := [2]int{p.GridPos.X, p.GridPos.Y}
			if places[at] || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.Y%p.GridPos.H != 0 {
				t.Errorf("%s: panel %d is at %v", b.name, p.ID, p.GridPos)
			}
			places[at] = true
			for _, query := range p.Targets {
				for _, v := range regexp.MustCompile(`\$[a-z]+`).FindAllString(query.Expr, -1) {
					if !variables[v] {
						t.Errorf("%s: panel %d asks for %s, which is no variable", b.name, p.ID, v)
					}
				}
				if query.RefID < "A" || query.RefID > "Z" {
					t.Errorf("%s: query %q", b.name, query.RefID)
				}
			}
		}
	}
}
