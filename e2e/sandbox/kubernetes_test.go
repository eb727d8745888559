// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// read writes a go.mod and reads it as the product does.
func read(t *testing.T, text string) moduleFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "go.mod")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := readModule(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const ownModule = `module own
go 1.25.0
require (
	go.etcd.io/etcd/server/v3 v3.6.4
	k8s.io/kubernetes v1.34.1
	volcano.sh/volcano v1.14.1
)
replace golang.org/x/net => golang.org/x/net v0.43.0
`

func TestAnotherKubernetesHasItsOwnModulesAndOurEtcd(t *testing.T) {
	theirs := read(t, `module k8s.io/kubernetes
go 1.26.0
require k8s.io/cri-streaming v0.0.0
replace (
	k8s.io/cri-streaming => ./staging/src/k8s.io/cri-streaming
	k8s.io/kubelet => ./staging/src/k8s.io/kubelet
	github.com/example/fork => github.com/example/other v1.0.0
)
`)
	text, err := otherModule(read(t, ownModule), theirs, "1.36.3")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	m := read(t, text)
	for _, r := range m.Require {
		got[r.Path] = r.Version
	}
	for _, r := range m.Replace {
		got[r.Old.Path+" => "+r.New.Path] = r.New.Version
	}
	want := map[string]string{
		"go.etcd.io/etcd/server/v3": "v3.6.4", "k8s.io/kubernetes": "v1.36.3",
		"k8s.io/component-base": "v0.36.3", "k8s.io/cri-client": "v0.36.3",
		"k8s.io/cri-streaming => k8s.io/cri-streaming": "v0.36.3", "k8s.io/kubelet => k8s.io/kubelet": "v0.36.3",
	}
	for what, version := range want {
		if got[what] != version {
			t.Errorf("%s has version %q, want %s", what, got[what], version)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the module names %v, want no more than %v", got, want)
	}
}

func TestAKubernetesOfAnotherLayoutIsRefused(t *testing.T) {
	theirs := read(t, "module k8s.io/kubernetes\ngo 1.30\n")
	if text, err := otherModule(read(t, ownModule), theirs, "1.50.0"); err == nil {
		t.Errorf("no error, but the module\n%s", text)
	}
}

func TestTheOwnKubernetesIsTheModules(t *testing.T) {
	m, err := readModule(context.Background(), "../controlplane/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range m.Require {
		if r.Path == "k8s.io/kubernetes" && r.Version != "v"+ownKubernetes {
			t.Errorf("e2e/controlplane has Kubernetes %s, this package takes it for %s", r.Version, ownKubernetes)
		}
	}
}

func TestEachKubernetesHasAProgramOfItsOwn(t *testing.T) {
	l := layout{repo: "/repo", state: "/repo/.sandbox/state"}
	for version, want := range map[string]struct{ program, flag string }{
		"":        {"/repo/.sandbox/bin/controlplane", ""},
		"1.34.1":  {"/repo/.sandbox/bin/controlplane", ""},
		"1.33.13": {"/repo/.sandbox/bin/controlplane-1.33.13", "-modfile=/repo/.sandbox/kubernetes/1.33.13/go.mod"},
	} {
		o, err := Options{Repo: "/repo", State: l.state, Kubernetes: version}.Defaults()
		if err != nil {
			t.Fatal(err)
		}
		target := controlPlaneTarget(o, l)
		flags := strings.Join(target.flags, " ")
		if target.output != want.program || o.controlPlane(l) != want.program {
			t.Errorf("Kubernetes %q is built to %s and run from %s, want %s", version, target.output, o.controlPlane(l), want.program)
		}
		if strings.Contains(flags, "-modfile") != (want.flag != "") || !strings.Contains(flags, want.flag) {
			t.Errorf("Kubernetes %q is built with %s, want %q in it", version, flags, want.flag)
		}
	}
}

func TestAKubernetesHasItsPatchInTheVersion(t *testing.T) {
	for _, version := range []string{"1.33", "v1.33.13", "1.33.13-rc.1", "../../x", "1.33.013", "1.33.13 "} {
		if _, err := (Options{Repo: "/repo", Kubernetes: version}).Defaults(); err == nil {
			t.Errorf("Kubernetes %q is taken", version)
		}
	}
}

func TestOnlyAKubeletThatKnowsTheGateIsToldToRestartQuickly(t *testing.T) {
	for version, want := range map[string]bool{"1.31.14": false, "1.32.0": true, ownKubernetes: true, "1.40.0": true} {
		values := testValues()
		values.QuickRestarts = Options{Kubernetes: version}.kubeletRestartsQuickly()
		text, err := render("kubelet.yaml", values)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, "KubeletCrashLoopBackOffMax") != want {
			t.Errorf("Kubernetes %s: want the gate %v in\n%s", version, want, text)
		}
	}
}
