// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"deviceshare/view/capture"
)

var update = flag.Bool("update", false, "write the golden files anew")

// run runs the command as a user types it and returns what it prints.
func run(t testing.TB, args ...string) (string, error) {
	t.Helper()
	var out, errs bytes.Buffer
	c := rootCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errs})
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func file(t testing.TB, s *capture.State) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := capture.Write(f, s); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEveryCommandOnCapturedClusters(t *testing.T) {
	commands := map[string][]string{
		"status": nil, "devices": nil, "devices -o wide": nil, "pods -A": nil, "pods -A -o wide": nil, "queues": nil,
		"status -o yaml": nil, "devices node-1 -o json": nil,
		"why train-4": {"small"}, "why train-1": {"small"}, "why gang-0": {"small"}, "why quota-0 -n research": {"small"}, "pods -n research": {"small"},
		"why large -n team": {"mixed"}, "why gated -n team": {"mixed"}, "why wrong -n team": {"mixed"}, "why infer-1 -n team": {"mixed"},
		"why lost -n team":       {"mixed"},
		"why pod-000100 -n team": {"large"}, "devices node-4999": {"large"}, "pods -n other": {"large"},
	}
	onEvery := []string{"status", "queues", "status -o yaml"}
	for cluster, s := range map[string]*capture.State{"small": small(), "mixed": mixed(), "large": large(5000, 10000)} {
		path := file(t, s)
		for line, only := range commands {
			if len(only) > 0 && only[0] != cluster || len(only) == 0 && cluster == "large" && !slices.Contains(onEvery, line) {
				continue // of all its devices and pods there would be too much to read
			}
			t.Run(cluster+"/"+line, func(t *testing.T) {
				got, err := run(t, append(strings.Fields(line), "--from", path)...)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, filepath.Join("testdata", cluster, strings.NewReplacer(" ", "_").Replace(line)+".txt"), got)
			})
		}
	}
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs, see -update:\n%s\nwant\n%s", path, got, want)
	}
	if strings.ContainsRune(got, '\x1b') {
		t.Error("the output moves the terminal")
	}
}

func TestAHashedCaptureAnswersLikeTheOneItWasMadeFrom(t *testing.T) {
	path, hashed := file(t, small()), filepath.Join(t.TempDir(), "hashed.jsonl")
	if _, err := run(t, "capture", hashed, "--hash-names", "--from", path); err != nil {
		t.Fatal(err)
	}
	models := func(path string) string {
		text, err := run(t, "status", "-o", "json", "--from", path)
		if err != nil {
			t.Fatal(err)
		}
		var s struct{ Models, Waiting any }
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		out, _ := yaml.Marshal(s)
		return string(out)
	}
	if got, want := models(hashed), models(path); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if text, _ := os.ReadFile(hashed); strings.Contains(string(text), "train-") {
		t.Error("a name shows")
	}
	if _, err := run(t, "capture", hashed, "--from", path); err == nil {
		t.Error("a file that was there was overwritten")
	}
}

func TestMistakesOfUsersAreSaid(t *testing.T) {
	path := file(t, small())
	for line, want := range map[string]string{
		"status -o xml":      `unknown output "xml"`,
		"status --watch":     "--watch follows a cluster",
		"why nobody":         "no pod default/nobody asks for shared devices",
		"devices node-9":     "node node-9 publishes no devices",
		"devices node-1 two": "accepts at most 1 arg",
	} {
		_, err := run(t, append(strings.Fields(line), "--from", path)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error that says %q", line, err, want)
		}
	}
	if _, err := run(t, "status", "--from", path+".none"); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestNamesOfNodesAndPodsAreCompleted(t *testing.T) {
	path := file(t, small())
	for line, want := range map[string]string{"devices": "node-1", "why": "train-4"} {
		got, err := run(t, "__complete", line, "--from", path, "")
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("completion of %s: %q %v, want %q among it", line, got, err, want)
		}
	}
}

// The whole cluster of 5,000 nodes is for the benchmark.
func TestStatusOfALargeClusterAddsUp(t *testing.T) {
	path := file(t, large(50, 800))
	text, err := run(t, "status", "-o", "json", "--from", path)
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Nodes, Waiting int
		Models         []struct{ Devices, Shares int }
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	if s.Nodes != 50 || s.Waiting != 8 || s.Models[0].Devices != 400 || s.Models[0].Shares != 792 {
		t.Errorf("got %+v", s)
	}
}
