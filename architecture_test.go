// SPDX-License-Identifier: Apache-2.0

// Package deviceshare_test holds the rules of the repository as tests: who may
// import whom (this file) and what every file looks like (house_test.go).
package deviceshare_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// pkg is what `go list` says of one package. Deps is transitive.
type pkg struct {
	ImportPath string
	Doc        string
	Dir        string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

// rule forbids packages that match From to import packages that match To.
// Transitive rules look through other packages.
type rule struct {
	Name       string
	Why        string
	From       func(path string) bool
	To         func(path string) bool
	Transitive bool
}

// rules is DESIGN section 2 as data.
func rules() []rule {
	return []rule{
		{
			Name: "the domain imports the standard library and itself only",
			Why:  "decisions must be repeatable on a laptop, from their inputs alone",
			From: pureDomain,
			To:   func(p string) bool { return !standard(p) && !under("sharing")(p) },
		},
		{
			Name: "the domain touches no clock, randomness, file, network or log",
			Why:  "the same inputs must give the same decision",
			From: pureDomain,
			To:   effects,
		},
		{
			Name: "the domain does not know the node halves",
			Why:  "the scheduler would link the driver",
			From: pureDomain,
			To:   nodeHalf,
		},
		{
			Name: "a backend does not know another backend",
			Why:  "a backend must be deletable",
			From: backend("hamicore"), To: backend("mig", "mps", "timeslicing"),
		},
		{
			Name: "a backend does not know another backend",
			Why:  "a backend must be deletable",
			From: backend("mig"), To: backend("hamicore", "mps", "timeslicing"),
		},
		{
			Name: "a backend does not know another backend",
			Why:  "a backend must be deletable",
			From: backend("mps"), To: backend("hamicore", "mig", "timeslicing"),
		},
		{
			Name: "a backend does not know another backend",
			Why:  "a backend must be deletable",
			From: backend("timeslicing"), To: backend("hamicore", "mig", "mps"),
		},
		{
			Name: "a node half knows neither Kubernetes nor the adapters",
			Why:  "it is tested with a temporary directory",
			From: nodeHalf,
			To:   anyOf(under("plugins", "deviceplugin", "config"), external("k8s.io/", "volcano.sh/")),
		},
		{
			Name: "scheduler and device plugin do not know each other", Transitive: true,
			Why:  "they meet on the wire, so that a fleet can be moved node by node",
			From: under("plugins", "cmd/deviceshare-scheduler", "cmd/deviceshare-webhook"),
			To:   anyOf(under("deviceplugin"), nodeHalf),
		},
		{
			Name: "device plugin and scheduler do not know each other", Transitive: true,
			Why:  "they meet on the wire, so that a fleet can be moved node by node",
			From: under("deviceplugin", "cmd/deviceshare-device-plugin"),
			To:   anyOf(under("plugins"), external("volcano.sh/")),
		},
		{
			Name: "the scheduler never links NVML", Transitive: true,
			Why:  "it runs on nodes without a driver",
			From: under("plugins", "cmd/deviceshare-scheduler", "cmd/deviceshare-webhook"),
			To:   external("github.com/NVIDIA/"),
		},
		{
			Name: "configuration does not know the adapters",
			Why:  "both sides read it",
			From: under("config"),
			To:   under("plugins", "deviceplugin", "cmd"),
		},
		{
			Name: "e2e is a black box: of the product it knows the wire only",
			Why:  "it must see what a user sees",
			From: under("e2e"),
			To: func(p string) bool {
				return under("sharing", "plugins", "deviceplugin", "config", "cmd")(p) &&
					p != "deviceshare/sharing" && p != "deviceshare/sharing/wire" && p != "deviceshare/sharing/request"
			},
		},
		{
			Name: "nobody imports a composition root",
			Why:  "cmd is the only place that knows every part",
			From: func(string) bool { return true },
			To:   under("cmd"),
		},
	}
}

func TestImportsFollowTheArchitecture(t *testing.T) {
	for _, v := range violations(list(t), rules()) {
		t.Error(v)
	}
}

// A rule that cannot fail guards nothing: each is broken here on purpose.
func TestEveryImportRuleCatchesItsViolation(t *testing.T) {
	broken := []struct{ from, to string }{
		{"deviceshare/sharing/place", "k8s.io/api/core/v1"},
		{"deviceshare/sharing/policy", "time"},
		{"deviceshare/sharing/wire", "deviceshare/sharing/hamicore/hamicorenode"},
		{"deviceshare/sharing/hamicore", "deviceshare/sharing/mig"},
		{"deviceshare/sharing/mig/mignode", "deviceshare/sharing/mps"},
		{"deviceshare/sharing/mps", "deviceshare/sharing/timeslicing"},
		{"deviceshare/sharing/timeslicing", "deviceshare/sharing/mig"},
		{"deviceshare/sharing/hamicore/hamicorenode", "k8s.io/client-go/kubernetes"},
		{"deviceshare/plugins/deviceshare", "deviceshare/deviceplugin/render"},
		{"deviceshare/deviceplugin/server", "deviceshare/plugins/podspec"},
		{"deviceshare/cmd/deviceshare-scheduler", "github.com/NVIDIA/go-nvml/pkg/nvml"},
		{"deviceshare/config", "deviceshare/plugins/deviceshare"},
		{"deviceshare/e2e/suites", "deviceshare/sharing/place"},
		{"deviceshare/deviceplugin/server", "deviceshare/cmd/deviceshare-device-plugin"},
	}
	if got, want := len(broken), len(rules()); got != want {
		t.Errorf("%d examples of broken rules for %d rules", got, want)
	}
	for i, b := range broken {
		p := pkg{ImportPath: b.from, Doc: "x", Imports: []string{b.to}, Deps: []string{b.to}}
		if got := violations([]pkg{p}, rules()[i:i+1]); len(got) == 0 {
			t.Errorf("rule %q did not catch %s importing %s", rules()[i].Name, b.from, b.to)
		}
	}
}

// violations lists every import that breaks a rule.
func violations(pkgs []pkg, rules []rule) []string {
	var found []string
	for _, p := range pkgs {
		for _, r := range rules {
			if !r.From(p.ImportPath) {
				continue
			}
			reached := p.Imports
			if r.Transitive {
				reached = p.Deps
			}
			for _, to := range reached {
				if to != p.ImportPath && r.To(to) {
					found = append(found, fmt.Sprintf("%s imports %s: %s, because %s", p.ImportPath, to, r.Name, r.Why))
				}
			}
		}
	}
	return found
}

// list asks the go command for every package of the module.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,Dir,GoFiles,Imports,Deps", "./...")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("decode go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) < 10 {
		t.Fatalf("go list found %d packages: the rules would guard nothing", len(pkgs))
	}
	return pkgs
}

// under matches the packages in and below folders of this module.
func under(folders ...string) func(string) bool {
	return func(p string) bool {
		return slices.ContainsFunc(folders, func(f string) bool {
			return p == "deviceshare/"+f || strings.HasPrefix(p, "deviceshare/"+f+"/")
		})
	}
}

// backend matches both halves of the named backends.
func backend(names ...string) func(string) bool {
	folders := make([]string, len(names))
	for i, n := range names {
		folders[i] = "sharing/" + n
	}
	return under(folders...)
}

func external(prefixes ...string) func(string) bool {
	return func(p string) bool {
		return slices.ContainsFunc(prefixes, func(x string) bool { return strings.HasPrefix(p, x) })
	}
}

func anyOf(matches ...func(string) bool) func(string) bool {
	return func(p string) bool {
		return slices.ContainsFunc(matches, func(m func(string) bool) bool { return m(p) })
	}
}

// nodeHalf matches the packages with effects inside sharing.
func nodeHalf(p string) bool {
	return under("sharing")(p) && (p == "deviceshare/sharing/factory/nodefactory" ||
		strings.HasSuffix(p, "node") || strings.Contains(p, "node/"))
}

// pureDomain is sharing without the node halves, their vocabulary and the
// support code of tests.
func pureDomain(p string) bool {
	return under("sharing")(p) && !nodeHalf(p) &&
		!under("sharing/nodeapi", "sharing/sharingtest")(p)
}

func effects(p string) bool {
	switch strings.SplitN(p, "/", 2)[0] {
	case "os", "net", "log", "time", "syscall", "plugin":
		return true
	}
	return p == "math/rand" || p == "math/rand/v2" || p == "crypto/rand" || p == "io/ioutil"
}

// standard matches the standard library: its first path element has no dot.
func standard(p string) bool {
	first := strings.SplitN(p, "/", 2)[0]
	return !strings.Contains(first, ".") && first != "deviceshare"
}
