// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deviceshare/e2e/prometheus"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// chartFiles is where the chart has its rules and dashboards.
const chartFiles = "../../manifests/chart/files"

// inUse is a pod of this suite, and what Prometheus is to know of it in MiB.
type inUse struct {
	name        string
	mode        sharing.Mode
	ask         workload.Ask
	alloc, busy string // MiB, and whether it computes
	limit       int64  // that programs meet; 0 is none
}

// inEveryMode are a share, a whole device, an MPS client, a time slice and a partition.
func inEveryMode() []inUse {
	return []inUse{
		{name: "share", mode: sharing.HAMiCore, ask: workload.Ask{Number: 1, Memory: 1000, Cores: 30}, alloc: "600", busy: "busy", limit: 1000},
		{name: "whole", mode: sharing.HAMiCore, ask: workload.Ask{Number: 1}, alloc: "2000"},
		{name: "client", mode: sharing.MPS, ask: workload.Ask{Number: 1, Memory: 1000}, alloc: "400", limit: 1000},
		{name: "slice", mode: sharing.TimeSlicing, ask: workload.Ask{Number: 1, Memory: 1000}, alloc: "500"},
		{name: "partition", mode: sharing.MIG, ask: workload.Ask{Number: 1, Memory: 5000}, alloc: "300"},
	}
}

// learnsFrom is how many pods the scheduler has to have seen before it says what is free for
// pods like them.
const learnsFrom = 50

// A Prometheus of Debian scrapes the installed product as docs/endpoints.md says. What it then
// knows is what the containers say of themselves, and every rule and panel of the chart has
// something to show.
func testPrometheus(t *testing.T, w *world) {
	ctx, u := w.user(t, "prometheus", 2*time.Minute)
	w.mode(ctx, t, u, fmt.Sprintf(`"operatingmode":"hami-core","devices":[{"index":%d,"mode":"mps"},{"index":%d,"mode":"time-slicing"},{"index":%d,"mode":"mig"}]`,
		gpus-1, gpus-3, hopper))
	t.Cleanup(func() { w.hamiCoreAgain(t, u) })
	server := w.prometheus(ctx, t)
	modes := map[int]sharing.Mode{gpus - 1: sharing.MPS, gpus - 3: sharing.TimeSlicing, hopper: sharing.MIG}
	w.waitDevices(ctx, t, gpus, func(d *sharing.Device) bool {
		want, special := modes[d.Index]
		return d.Healthy && (d.Mode == want || !special && d.Mode == sharing.HAMiCore)
	})
	for i := range learnsFrom {
		nowhere := ask(fmt.Sprintf("waits-%d", i), 1000)
		p := nowhere.Build()
		p.Spec.NodeSelector = map[string]string{"there-is": "no-such-node"}
		if err := u.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range inEveryMode() {
		steps := []string{"alloc", p.alloc, "expect", "ok", "info", "forever"}
		if p.busy != "" {
			steps = []string{"alloc", p.alloc, "expect", "ok", "info", p.busy, "600"}
		}
		if err := u.Create(ctx, orderly(p.name).App("main", p.ask, steps...).Annotate(wire.UserMode, string(p.mode)).Build()); err != nil {
			t.Fatal(err)
		}
	}
	agree(ctx, t, "Prometheus knows what containers use", func() error { return knowsUse(ctx, u, server) })
	agree(ctx, t, "rules are evaluated", func() error { return server.Healthy(ctx, 3, countRules(t)) })
	agree(ctx, t, "queries have data", func() error { return haveData(ctx, server, queriesOfTheChart(t)) })
	w.pagesAreClean(ctx, t)
}

// hamiCoreAgain takes the devices back into the mode of the other suites.
func (w *world) hamiCoreAgain(t *testing.T, u *user.User) {
	ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
	defer cancel()
	if err := u.DeleteAll(ctx); err != nil {
		t.Error(err)
	}
	if err := u.ConfigureNodes(ctx, `{"nodeconfig":[]}`); err != nil {
		t.Error(err)
	}
	w.waitDevices(ctx, t, gpus, func(d *sharing.Device) bool { return d.Mode == sharing.HAMiCore && d.Healthy })
}

// agree waits until there is nothing wrong any more.
func agree(ctx context.Context, t *testing.T, what string, wrong func() error) {
	t.Helper()
	for begin := time.Now(); ; sleep(ctx, 500*time.Millisecond) {
		err := wrong()
		if err == nil {
			t.Logf("%s after %.1f s", what, time.Since(begin).Seconds())
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: not so: %v", what, err)
		}
	}
}

// prometheus starts the server with the chart's rules and the configuration that docs/endpoints.md
// has for a Prometheus without the operator. It scrapes each second.
func (w *world) prometheus(ctx context.Context, t *testing.T) *prometheus.Server {
	t.Helper()
	tools, err := prometheus.Install(ctx, "../..")
	if err != nil {
		t.Fatal(err)
	}
	token, err := w.cluster.ReaderToken(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	config := "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yaml, aliases.yaml]\nscrape_configs:\n"
	for name, text := range chartRules(t) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, component := range []string{sandbox.Scheduler, sandbox.DevicePlugin, sandbox.Webhook} {
		address, err := w.cluster.PagesOf(ctx, component)
		if err != nil {
			t.Fatal(err)
		}
		config += fmt.Sprintf(`  - job_name: %s
    honor_labels: true
    scheme: https
    authorization: {credentials_file: token}
    tls_config: {insecure_skip_verify: true}
    static_configs: [{targets: [%q]}]
`, component, strings.TrimPrefix(address, "https://"))
	}
	server, err := tools.Start(ctx, dir, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("Prometheus said:\n%s", server.Log())
		}
	})
	return server
}

// knowsUse compares what Prometheus knows of containers, devices and the partition with what the
// containers have written into their logs.
func knowsUse(ctx context.Context, u *user.User, server *prometheus.Server) error {
	for _, p := range inEveryMode() {
		itself, total, err := saysOfItself(ctx, u, p.name)
		if err != nil {
			return err
		}
		made, err := u.Get(ctx, p.name)
		if err != nil {
			return err
		}
		placed, err := user.Placement(made)
		if err != nil {
			return fmt.Errorf("pod %s: %w", p.name, err)
		}
		share, limit := placed.Containers[0].Shares[0], p.limit<<20
		labels := fmt.Sprintf(`{namespace=%q,pod=%q,container="main",device=%q`, u.Namespace(), p.name, share.Device)
		container := labels + fmt.Sprintf(`,mode=%q,node=%q}`, p.mode, sandbox.NodeName)
		want := map[string]int64{
			"deviceshare_container_memory_used_bytes" + container: itself,
			"deviceshare_node_share_memory_bytes" + container:     int64(share.Memory),
		}
		device := fmt.Sprintf(`{device=%q,mode=%q,node=%q}`, share.Device, p.mode, sandbox.NodeName)
		want["sum without (index, model) (deviceshare_node_device_memory_used_bytes"+device+")"] = itself
		want["deviceshare_device_memory_allocated_bytes"+device] = int64(share.Memory)
		if p.mode == sharing.MIG {
			limit = total
			partition := labels + fmt.Sprintf(`,profile=%q,node=%q}`, share.Partition.Profile, sandbox.NodeName)
			want["deviceshare_node_partition_memory_used_bytes"+partition] = itself
			want["deviceshare_node_partition_memory_limit_bytes"+partition] = total
			want["deviceshare_node_partition_memory_given_bytes"+partition] = int64(share.Memory)
		}
		want["deviceshare_container_memory_limit_bytes"+container] = limit
		for query, bytes := range want {
			if err := isBytes(ctx, server, query, bytes); err != nil {
				return fmt.Errorf("pod %s, which has %d of %d bytes by its own account: %w", p.name, itself, total, err)
			}
		}
	}
	return nil
}

// saysOfItself returns what a container has in use and can have at most, by its own log.
func saysOfItself(ctx context.Context, u *user.User, name string) (used, total int64, err error) {
	log, err := u.Log(ctx, name, "main")
	if err != nil {
		return 0, 0, err
	}
	lines := strings.Split(log, "\n")
	i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "info index=0 ") })
	if i < 0 {
		return 0, 0, fmt.Errorf("%s has not said yet what it has: %s", name, log)
	}
	total = number(lines[i], "meminfo_total")
	used = total - number(lines[i], "meminfo_free")
	if used < 100<<20 {
		return 0, 0, fmt.Errorf("%s uses %d bytes only: %s", name, used, lines[i])
	}
	return used, total, nil
}

// isBytes returns an error if a query does not have one series with so many bytes, within one page
// of the library.
func isBytes(ctx context.Context, server *prometheus.Server, query string, want int64) error {
	const page = 2 << 20
	got, err := server.Query(ctx, query)
	if err != nil {
		return err
	}
	if len(got) != 1 {
		return fmt.Errorf("%s has %d series, want one: %v", query, len(got), got)
	}
	if is := int64(got[0].Value); max(is-want, want-is) > page {
		return fmt.Errorf("%s is %d, want %d", query, is, want)
	}
	return nil
}

// countRules is how many rules the chart has.
func countRules(t *testing.T) int {
	t.Helper()
	n := 0
	for _, text := range chartRules(t) {
		n += strings.Count(text, "expr: ")
	}
	return n
}

// chartRules are the files of rules in the chart.
func chartRules(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{"rules.yaml", "aliases.yaml"} {
		text, err := os.ReadFile(filepath.Join(chartFiles, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	return files
}

// ofDCGM is the dashboard whose series need NVIDIA's exporter.
const ofDCGM = "power.json"

// queriesOfTheChart are the queries of every panel, with all values of their variables, and
// what the rules record. Those of NVIDIA's exporter are left out.
func queriesOfTheChart(t *testing.T) map[string]string {
	t.Helper()
	queries := map[string]string{}
	for _, text := range chartRules(t) {
		for _, line := range strings.Split(text, "\n") {
			if _, name, ok := strings.Cut(line, "record: "); ok {
				queries[name] = name
			}
		}
	}
	paths, err := filepath.Glob(filepath.Join(chartFiles, "dashboards", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	all := strings.NewReplacer("$node", ".+", "$namespace", ".+", "$queue", ".+")
	for _, path := range paths {
		if filepath.Base(path) == ofDCGM {
			continue // the chart's tests have such series
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Panels []struct {
				Title   string
				Targets []struct{ RefID, Expr string }
			}
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				queries[filepath.Base(path)+"/"+p.Title+"/"+target.RefID] = all.Replace(target.Expr)
			}
		}
	}
	if len(paths) != 5 || len(queries) < 80 {
		t.Fatalf("%d dashboards, and only %d queries", len(paths), len(queries))
	}
	return queries
}

// haveData returns an error that names the queries without data.
func haveData(ctx context.Context, server *prometheus.Server, queries map[string]string) error {
	var empty []string
	for where, query := range queries {
		got, err := server.Query(ctx, query)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		if len(got) == 0 {
			empty = append(empty, where+": "+query)
		}
	}
	if len(empty) > 0 {
		slices.Sort(empty)
		return fmt.Errorf("%d of %d queries have no data:\n%s", len(empty), len(queries), strings.Join(empty, "\n"))
	}
	return nil
}

// pagesAreClean has promtool look at the metrics of the product. Those of Volcano and of libraries
// are on the same pages, and are named as their makers like it.
func (w *world) pagesAreClean(ctx context.Context, t *testing.T) {
	t.Helper()
	tools, err := prometheus.Install(ctx, "../..")
	if err != nil {
		t.Fatal(err)
	}
	token, err := w.cluster.ReaderToken(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range []string{sandbox.Scheduler, sandbox.DevicePlugin, sandbox.Webhook} {
		address, err := w.cluster.PagesOf(ctx, component)
		if err != nil {
			t.Fatal(err)
		}
		_, page, err := sandbox.GetPage(ctx, address+"/metrics", token)
		if err != nil {
			t.Fatal(err)
		}
		var ours []string
		for _, line := range strings.SplitAfter(string(page), "\n") {
			if strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "), "deviceshare_") {
				ours = append(ours, line)
			}
		}
		if len(ours) < 10 {
			t.Errorf("the page of %s has %d lines of ours", component, len(ours))
		}
		if err := tools.Check(ctx, t.TempDir(), []byte(strings.Join(ours, "")), "check", "metrics"); err != nil {
			t.Errorf("page of %s: %v", component, err)
		}
	}
}
