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

// rule forbids some imports. Transitive rules look through other packages.
type rule struct {
	Name       string
	Why        string
	Breaks     func(from, to string) bool
	Transitive bool
	// Example breaks the rule: a rule that cannot fail guards nothing.
	Example [2]string
}

// rules is the architecture as data: docs/architecture.md draws it.
func rules() []rule {
	return append(domainRules(), adapterRules()...)
}

func domainRules() []rule {
	return []rule{
		{
			Name: "the domain imports the standard library and itself only",
			Why:  "decisions must be repeatable on a laptop, from their inputs alone",
			Breaks: func(from, to string) bool {
				return pureDomain(from) && !standard(to) && !under("sharing")(to)
			},
			Example: [2]string{"deviceshare/sharing/place", "k8s.io/api/core/v1"},
		},
		{
			Name:    "the domain touches no clock, randomness, file, network or log",
			Why:     "the same inputs must give the same decision",
			Breaks:  func(from, to string) bool { return pureDomain(from) && effects(to) },
			Example: [2]string{"deviceshare/sharing/policy", "time"},
		},
		{
			Name:    "the domain does not know the node halves",
			Why:     "the scheduler would link the driver",
			Breaks:  func(from, to string) bool { return pureDomain(from) && nodeHalf(to) },
			Example: [2]string{"deviceshare/sharing/wire", "deviceshare/sharing/hamicore/hamicorenode"},
		},
		{
			Name: "a backend does not know another backend",
			Why:  "a backend must be deletable",
			Breaks: func(from, to string) bool {
				return backend(from) != "" && backend(to) != "" && backend(from) != backend(to)
			},
			Example: [2]string{"deviceshare/sharing/mig/mignode", "deviceshare/sharing/mps"},
		},
		{
			Name: "a node half knows neither Kubernetes nor the adapters, but for the driver's interfaces",
			Why:  "it is tested with a temporary directory",
			Breaks: func(from, to string) bool {
				adapters := under("plugins", "deviceplugin", "config")(to) && !under("deviceplugin/driver")(to)
				return nodeHalf(from) && (adapters || external("k8s.io/", "volcano.sh/")(to))
			},
			Example: [2]string{"deviceshare/sharing/hamicore/hamicorenode", "k8s.io/client-go/kubernetes"},
		},
	}
}

func adapterRules() []rule {
	scheduler := under("plugins", "cmd/deviceshare-scheduler", "cmd/deviceshare-webhook")
	return []rule{
		{
			Name: "the scheduler does not know the device plugin", Transitive: true,
			Why:     "they meet on the wire, so that a fleet can be moved node by node",
			Breaks:  func(from, to string) bool { return scheduler(from) && (under("deviceplugin")(to) || nodeHalf(to)) },
			Example: [2]string{"deviceshare/plugins/deviceshare", "deviceshare/deviceplugin/cdi"},
		},
		{
			Name: "the device plugin does not know the scheduler", Transitive: true,
			Why: "they meet on the wire, so that a fleet can be moved node by node",
			Breaks: func(from, to string) bool {
				return under("deviceplugin", "cmd/deviceshare-device-plugin")(from) && (under("plugins")(to) || external("volcano.sh/")(to))
			},
			Example: [2]string{"deviceshare/deviceplugin/kubelet", "deviceshare/plugins/podspec"},
		},
		{
			Name: "the scheduler never links NVML", Transitive: true,
			Why:     "it runs on nodes without a driver",
			Breaks:  func(from, to string) bool { return scheduler(from) && external("github.com/NVIDIA/")(to) },
			Example: [2]string{"deviceshare/cmd/deviceshare-scheduler", "github.com/NVIDIA/go-nvml/pkg/nvml"},
		},
		{
			Name: "the driver's adapter knows no backend",
			Why:  "backends adapt the driver, so that one can be deleted and another be added",
			Breaks: func(from, to string) bool {
				return under("deviceplugin/driver")(from) && backend(to) != ""
			},
			Example: [2]string{"deviceshare/deviceplugin/driver", "deviceshare/sharing/mig/mignode"},
		},
		{
			Name: "configuration does not know the adapters",
			Why:  "both sides read it",
			Breaks: func(from, to string) bool {
				return under("config")(from) && under("plugins", "deviceplugin", "cmd")(to)
			},
			Example: [2]string{"deviceshare/config", "deviceshare/plugins/deviceshare"},
		},
		{
			Name: "e2e is a black box: of the product it knows the wire only",
			Why:  "it must see what a user sees",
			Breaks: func(from, to string) bool {
				known := to == "deviceshare/sharing" || to == "deviceshare/sharing/wire"
				return under("e2e")(from) && under("sharing", "plugins", "deviceplugin", "config", "cmd")(to) && !known
			},
			Example: [2]string{"deviceshare/e2e/suites", "deviceshare/sharing/place"},
		},
		{
			Name:    "nobody imports a composition root",
			Why:     "cmd is the only place that knows every part",
			Breaks:  func(from, to string) bool { return under("cmd")(to) && !under("cmd")(from) },
			Example: [2]string{"deviceshare/deviceplugin/kubelet", "deviceshare/cmd/deviceshare-device-plugin"},
		},
	}
}

func TestImportsFollowTheArchitecture(t *testing.T) {
	for _, v := range violations(list(t), rules()) {
		t.Error(v)
	}
}

func TestEveryImportRuleCatchesItsExample(t *testing.T) {
	for _, r := range rules() {
		p := pkg{ImportPath: r.Example[0], Imports: r.Example[1:], Deps: r.Example[1:]}
		if got := violations([]pkg{p}, []rule{r}); len(got) != 1 {
			t.Errorf("rule %q did not catch %s importing %s", r.Name, r.Example[0], r.Example[1])
		}
	}
}

// violations lists every import that breaks a rule.
func violations(pkgs []pkg, rules []rule) []string {
	var found []string
	for _, p := range pkgs {
		for _, r := range rules {
			reached := p.Imports
			if r.Transitive {
				reached = p.Deps
			}
			for _, to := range reached {
				if r.Breaks(p.ImportPath, to) {
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

// backend names the backend whose folder the package is in, or "".
func backend(p string) string {
	for _, b := range []string{"hamicore", "mig", "mps", "timeslicing"} {
		if under("sharing/" + b)(p) {
			return b
		}
	}
	return ""
}

// external matches packages of other modules.
func external(prefixes ...string) func(string) bool {
	return func(p string) bool {
		return slices.ContainsFunc(prefixes, func(x string) bool { return strings.HasPrefix(p, x) })
	}
}

// nodeHalf matches the packages with effects inside sharing.
func nodeHalf(p string) bool {
	return under("sharing")(p) && (p == "deviceshare/sharing/factory/nodefactory" ||
		strings.HasSuffix(p, "node") || strings.Contains(p, "node/"))
}

// pureDomain is sharing without the node halves, their vocabulary and the
// support code of tests, and the model of a node.
func pureDomain(p string) bool {
	if p == "deviceshare/deviceplugin/node" {
		return true
	}
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
