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

// rules is the architecture as data: docs/architecture.md draws it. The backends are
// the folders that the two lists import.
func rules(backends []string) []rule {
	return slices.Concat(domainRules(), backendRules(backends), schedulerRules(), adapterRules(), viewRules())
}

func domainRules() []rule {
	return []rule{
		{
			Name: "the domain and the model of a node import the standard library and the domain only",
			Why:  "decisions must be repeatable on a laptop, from their inputs alone",
			Breaks: func(from, to string) bool {
				claims := from == "deviceshare/deviceplugin/node" && to == "deviceshare/deviceplugin/modes"
				return pure(from) && !standard(to) && !under("sharing")(to) && !claims
			},
			Example: [2]string{"deviceshare/sharing/place", "k8s.io/api/core/v1"},
		},
		{
			Name:    "neither of them touches a clock, randomness, a file, the network or a log",
			Why:     "the same inputs must give the same decision",
			Breaks:  func(from, to string) bool { return pure(from) && effects(to) },
			Example: [2]string{"deviceshare/sharing/policy", "time"},
		},
	}
}

func backendRules(backends []string) []rule {
	// backend names the backend that the package belongs to, or "".
	backend := func(p string) string {
		for _, b := range backends {
			if under("sharing/"+b, "deviceplugin/modes/"+b)(p) {
				return b
			}
		}
		return ""
	}
	vocabulary := func(p string) bool {
		return under("deviceplugin/host", "deviceplugin/limits")(p) || p == "deviceshare/deviceplugin/modes" || p == "deviceshare/deviceplugin/modes/modestest"
	}
	return []rule{
		{
			Name: "the readers of Kubernetes' pods and claims know their types and the domain only",
			Why:  "scheduler, webhook and device plugin share them, and none may pull in a client",
			Breaks: func(from, to string) bool {
				return corepod(from) && !standard(to) && !pureDomain(to) && !external("k8s.io/api/", "k8s.io/apimachinery/")(to)
			},
			Example: [2]string{"deviceshare/sharing/podspec/corepod", "k8s.io/client-go/kubernetes"},
		},
		{
			Name:    "the domain does not know the readers of Kubernetes' pods and claims",
			Why:     "decisions are made from neutral values",
			Breaks:  func(from, to string) bool { return pureDomain(from) && corepod(to) },
			Example: [2]string{"deviceshare/sharing/claimspec", "deviceshare/sharing/claimspec/coreclaim"},
		},
		{
			Name: "a backend does not know another backend",
			Why:  "a backend must be deletable",
			Breaks: func(from, to string) bool {
				return backend(from) != "" && backend(to) != "" && backend(from) != backend(to)
			},
			Example: [2]string{"deviceshare/deviceplugin/modes/" + backends[0], "deviceshare/sharing/" + backends[1]},
		},
		{
			Name: "the core does not know a backend",
			Why:  "a mode is added and taken away by its folder and two lines",
			Breaks: func(from, to string) bool {
				// The codec reads formats in which partitions have names.
				names := from == "deviceshare/sharing/wire" && to == "deviceshare/sharing/mig"
				return pureDomain(from) && backend(from) == "" && from != "deviceshare/sharing/factory" && backend(to) != "" && !names
			},
			Example: [2]string{"deviceshare/sharing/place", "deviceshare/sharing/" + backends[0]},
		},
		{
			Name: "the vocabulary of the node halves knows the domain and no backend",
			Why:  "every node half speaks it",
			Breaks: func(from, to string) bool {
				host := under("deviceplugin/host")(from) && (to == "golang.org/x/sys/unix" || to == "github.com/moby/sys/mountinfo")
				return vocabulary(from) && !standard(to) && to != "deviceshare/sharing" && !vocabulary(to) && !host
			},
			Example: [2]string{"deviceshare/deviceplugin/modes", "deviceshare/sharing/" + backends[0]},
		},
		{
			Name: "the driver's adapter knows no backend",
			Why:  "backends adapt the driver, so that one can be deleted and another be added",
			Breaks: func(from, to string) bool {
				return under("deviceplugin/driver")(from) && backend(to) != ""
			},
			Example: [2]string{"deviceshare/deviceplugin/driver", "deviceshare/deviceplugin/modes/mig"},
		},
		{
			Name: "a node half knows neither Kubernetes nor the adapters, but for the driver's interfaces",
			Why:  "it is tested with a temporary directory",
			Breaks: func(from, to string) bool {
				adapters := under("plugins", "deviceplugin", "config")(to) && !under("deviceplugin/driver")(to) && !nodeHalf(to)
				return nodeHalf(from) && (adapters || external("k8s.io/", "volcano.sh/")(to))
			},
			Example: [2]string{"deviceshare/deviceplugin/modes/hamicore", "k8s.io/client-go/kubernetes"},
		},
	}
}

func schedulerRules() []rule {
	scheduler := under("plugins", "cmd/deviceshare-scheduler", "cmd/deviceshare-webhook")
	return []rule{
		{
			Name: "the scheduler does not know the device plugin", Transitive: true,
			Why:     "they meet on the wire, so that a fleet can be moved node by node",
			Breaks:  func(from, to string) bool { return scheduler(from) && under("deviceplugin")(to) },
			Example: [2]string{"deviceshare/plugins/deviceshare", "deviceshare/deviceplugin/cdi"},
		},
		{
			Name: "the device plugin does not know the scheduler", Transitive: true,
			Why: "they meet on the wire, so that a fleet can be moved node by node",
			Breaks: func(from, to string) bool {
				return under("deviceplugin", "cmd/deviceshare-device-plugin")(from) && (under("plugins")(to) || external("volcano.sh/")(to))
			},
			Example: [2]string{"deviceshare/deviceplugin/kubelet", "deviceshare/plugins/admission"},
		},
		{
			Name: "what is on the nodes does not know Volcano", Transitive: true,
			Why: "the plugin shows it a snapshot, and what changes between Volcano's versions stays there",
			Breaks: func(from, to string) bool {
				return under("plugins/deviceshare/nodes")(from) && external("volcano.sh/")(to)
			},
			Example: [2]string{"deviceshare/plugins/deviceshare/nodes", "volcano.sh/volcano/pkg/scheduler/api"},
		},
		{
			Name: "the state of a pod is pure",
			Why:  "every order of events must be repeatable from the events alone",
			Breaks: func(from, to string) bool {
				return under("plugins/deviceshare/podstate")(from) && (effects(to) || !standard(to) && !pureDomain(to))
			},
			Example: [2]string{"deviceshare/plugins/deviceshare/podstate", "k8s.io/api/core/v1"},
		},
		{
			Name: "what is kept for whom is pure",
			Why:  "it must be repeatable from sessions and times alone",
			Breaks: func(from, to string) bool {
				return under("plugins/deviceshare/holds")(from) && (effects(to) || !standard(to))
			},
			Example: [2]string{"deviceshare/plugins/deviceshare/holds", "time"},
		},
		{
			Name: "when a pod is told why it waits is pure",
			Why:  "it must be repeatable from the texts and times alone",
			Breaks: func(from, to string) bool {
				return under("plugins/deviceshare/waiting/news")(from) && (effects(to) || !standard(to))
			},
			Example: [2]string{"deviceshare/plugins/deviceshare/waiting/news", "time"},
		},
		{
			Name: "the scheduler never links NVML", Transitive: true,
			Why:     "it runs on nodes without a driver",
			Breaks:  func(from, to string) bool { return scheduler(from) && external("github.com/NVIDIA/")(to) },
			Example: [2]string{"deviceshare/cmd/deviceshare-scheduler", "github.com/NVIDIA/go-nvml/pkg/nvml"},
		},
	}
}

func adapterRules() []rule {
	return []rule{
		{
			Name: "the hook knows no part of the product but what it decides by", Transitive: true,
			Why: "it is root on the host, reads files of strangers, and every container waits for it",
			Breaks: func(from, to string) bool {
				known := under("deviceplugin/cdi/hook")(to)
				return under("deviceplugin/cdi/hook", "cmd/deviceshare-hook")(from) && (strings.HasPrefix(to, "deviceshare/") && !known || external("k8s.io/")(to))
			},
			Example: [2]string{"deviceshare/deviceplugin/cdi/hook", "deviceshare/deviceplugin/modes"},
		},
		{
			Name: "containers, oversight and reporting do not know each other, and the loop knows none of them",
			Why:  "each is read, tested and changed alone; the command connects them",
			Breaks: func(from, to string) bool {
				rooms := under("deviceplugin/containers", "deviceplugin/oversight", "deviceplugin/reporting")
				return under("deviceplugin")(from) && rooms(to) && from != to
			},
			Example: [2]string{"deviceshare/deviceplugin/containers", "deviceshare/deviceplugin/reporting"},
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
				return under("e2e")(from) && under("sharing", "plugins", "deviceplugin", "config", "view", "endpoint", "cmd")(to) && !known
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

func viewRules() []rule {
	return []rule{
		{
			Name: "the endpoints know no part of the product",
			Why:  "every program serves its pages by them",
			Breaks: func(from, to string) bool {
				return under("endpoint")(from) && strings.HasPrefix(to, "deviceshare/") && !under("endpoint")(to)
			},
			Example: [2]string{"deviceshare/endpoint", "deviceshare/sharing"},
		},
		{
			Name: "the views know the domain, the configuration and what reads nodes for the scheduler",
			Why:  "they show what the scheduler sees, without Volcano's scheduler in every laptop's kubectl",
			Breaks: func(from, to string) bool {
				known := pureDomain(to) || corepod(to) || to == "deviceshare/config" || under("view", "endpoint", "plugins/deviceshare/nodes")(to)
				return under("view")(from) && !simulation(from) && strings.HasPrefix(to, "deviceshare/") && !known
			},
			Example: [2]string{"deviceshare/view", "deviceshare/plugins/deviceshare"},
		},
		{
			Name: "the simulation knows what the views know, the webhook and the scheduler that runs in process",
			Why:  "it adds pods as the webhook would and has the scheduler decide; it decides nothing",
			Breaks: func(from, to string) bool {
				known := pureDomain(to) || corepod(to) || to == "deviceshare/config" || under("view", "plugins/admission", "plugins/deviceshare/nodes", "plugins/deviceshare/offline")(to)
				return simulation(from) && strings.HasPrefix(to, "deviceshare/") && !known
			},
			Example: [2]string{"deviceshare/view/simulate", "deviceshare/plugins/deviceshare"},
		},
		{
			Name: "the plugin of kubectl and the views do not link Volcano's scheduler", Transitive: true,
			Why: "it is half of a program, which only a simulation needs",
			Breaks: func(from, to string) bool {
				return (under("view")(from) && !simulation(from) || from == "deviceshare/cmd/kubectl-deviceshare") && external("volcano.sh/volcano/")(to)
			},
			Example: [2]string{"deviceshare/cmd/kubectl-deviceshare", "volcano.sh/volcano/pkg/scheduler"},
		},
		{
			Name: "the views ask no clock, file, network or log",
			Why:  "the same capture must show the same",
			Breaks: func(from, to string) bool {
				return from == "deviceshare/view" && (effects(to))
			},
			Example: [2]string{"deviceshare/view", "os"},
		},
	}
}

func TestImportsFollowTheArchitecture(t *testing.T) {
	pkgs := list(t)
	for _, v := range violations(pkgs, rules(backends(t, pkgs))) {
		t.Error(v)
	}
}

// factories returns the lists of backends, each with the folder of what it lists.
func factories() map[string]string {
	return map[string]string{
		"deviceshare/sharing/factory":            "deviceshare/sharing/",
		"deviceshare/deviceplugin/modes/factory": "deviceshare/deviceplugin/modes/",
	}
}

// backends returns the names of the backends: of those folders that a list imports.
func backends(t *testing.T, pkgs []pkg) []string {
	t.Helper()
	var names []string
	for _, p := range pkgs {
		folder, isList := factories()[p.ImportPath]
		for _, to := range p.Imports {
			if name, inside := strings.CutPrefix(to, folder); isList && inside && !strings.Contains(name, "/") {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) < 2 {
		t.Fatalf("the factories list the backends %v: the rules would guard nothing", names)
	}
	return names
}

func TestBothListsHaveEveryBackend(t *testing.T) {
	pkgs := list(t)
	for _, name := range backends(t, pkgs) {
		for list, folder := range factories() {
			i := slices.IndexFunc(pkgs, func(p pkg) bool { return p.ImportPath == list })
			if i < 0 || !slices.Contains(pkgs[i].Imports, folder+name) {
				t.Errorf("%s does not import %s: a backend has a half for the scheduler and one for the node", list, folder+name)
			}
		}
	}
}

func TestEveryImportRuleCatchesItsExample(t *testing.T) {
	for _, r := range rules([]string{"mig", "mps"}) {
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

// external matches packages of other modules.
func external(prefixes ...string) func(string) bool {
	return func(p string) bool {
		return slices.ContainsFunc(prefixes, func(x string) bool { return strings.HasPrefix(p, x) })
	}
}

// nodeHalf matches what prepares containers: the node halves of the backends and their vocabulary.
func nodeHalf(p string) bool {
	return under("deviceplugin/modes", "deviceplugin/host", "deviceplugin/limits")(p)
}

// corepod matches the adapters in sharing: they read Kubernetes' pods and claims for both
// sides, which may not import each other.
func corepod(p string) bool {
	return under("sharing/podspec/corepod", "sharing/claimspec/coreclaim")(p)
}

// simulation matches the part of the views that has the scheduler decide.
func simulation(p string) bool { return under("view/simulate")(p) }

// pure matches what decides and has no effects: the domain, the model of a node and what a
// container preloads.
func pure(p string) bool {
	return pureDomain(p) || p == "deviceshare/deviceplugin/node" || p == "deviceshare/deviceplugin/cdi/hook/preload"
}

// pureDomain is sharing without the readers of Kubernetes' objects and the support code of tests.
func pureDomain(p string) bool {
	return under("sharing")(p) && !corepod(p) && !under("sharing/sharingtest")(p)
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
