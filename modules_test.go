// SPDX-License-Identifier: Apache-2.0

package deviceshare_test

import (
	"encoding/json"
	"os/exec"
	"testing"
)

// The build cache shares a package between two modules only if it and everything that it imports
// have the same versions in both. One old version low down, golang.org/x/sys for example, has all
// of Kubernetes compiled twice.
func TestTheControlPlaneSharesItsCompiledPackagesWithTheProduct(t *testing.T) {
	product, plane := requirements(t, "."), requirements(t, "e2e/controlplane")
	shared := 0
	for path, version := range plane {
		want, ok := product[path]
		if !ok {
			continue
		}
		shared++
		if version != want {
			t.Errorf("e2e/controlplane has %s %s and the product %s: run `go get %[1]s@%[3]s` in e2e/controlplane", path, version, want)
		}
	}
	if shared < 50 {
		t.Errorf("the modules have %d requirements in common, want more than 50: are they read at all?", shared)
	}
}

// requirements are the versions that a module asks for, replacements applied.
func requirements(t *testing.T, module string) map[string]string {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = module
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("read the go.mod of %s: %v", module, err)
	}
	type version struct{ Path, Version string }
	var mod struct {
		Require []version
		Replace []struct{ Old, New version }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatalf("read the go.mod of %s: %v", module, err)
	}
	versions := map[string]string{}
	for _, r := range mod.Require {
		versions[r.Path] = r.Version
	}
	for _, r := range mod.Replace {
		if _, required := versions[r.Old.Path]; required {
			versions[r.Old.Path] = r.New.Version
		}
	}
	return versions
}
