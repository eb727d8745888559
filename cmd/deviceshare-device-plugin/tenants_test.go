// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"deviceshare/deviceplugin/modes/mps"
	"deviceshare/deviceplugin/node"
)

func TestTheSchedulerIsToldWhatTheNodeRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*tenantFlags)
		served mps.Tenants
		told   node.Tenants
	}{
		"by default nobody meets": {func(*tenantFlags) {}, mps.Tenants{}, node.Tenants{OneUser: true, OneNamespace: true, NoRoot: true}},
		"all users":               {func(x *tenantFlags) { x.Users = "any" }, mps.Tenants{MultiUser: true}, node.Tenants{OneNamespace: true, NoRoot: true}},
		"all namespaces":          {func(x *tenantFlags) { x.Namespaces = "any" }, mps.Tenants{MultiNamespace: true}, node.Tenants{OneUser: true, NoRoot: true}},
		"root":                    {func(x *tenantFlags) { x.Root = "allow" }, mps.Tenants{RootUser: true}, node.Tenants{OneUser: true, OneNamespace: true}},
		"a pipe to be read": {func(x *tenantFlags) { x.Pipe = "ro" }, mps.Tenants{ReadOnlyPipe: true},
			node.Tenants{OneUser: true, OneNamespace: true, NoRoot: true}},
	} {
		m := defaultModeFlags()
		c.change(&m.MPSTenants)
		if wrong := m.MPSTenants.findMistakes(); len(wrong) > 0 {
			t.Errorf("%s: %v", name, wrong)
		}
		if got := m.MPSTenants.forPreparer(); got != c.served {
			t.Errorf("%s: the node serves %+v, want %+v", name, got, c.served)
		}
		if got := m.findPowers(nil, nil).MPS; got != c.told {
			t.Errorf("%s: the scheduler is told %+v, want %+v", name, got, c.told)
		}
	}
}

func TestEveryMistakeInWhoMeetsIsNamed(t *testing.T) {
	wrong := (&tenantFlags{Users: "all", Namespaces: "", Root: "yes", Pipe: "r"}).findMistakes()
	if len(wrong) != 4 {
		t.Fatalf("mistakes %v", wrong)
	}
	for i, flag := range []string{"--mps-users=", "--mps-tenants=", "--mps-root-user=", "--mps-pipe="} {
		if !strings.HasPrefix(wrong[i].Error(), flag) {
			t.Errorf("%v, want %s", wrong[i], flag)
		}
	}
}

func TestTheNodeKnowsHowMuchMemoryItHas(t *testing.T) {
	if memory, err := nodeMemory(); err != nil || memory <= 0 {
		t.Errorf("it has %d bytes (%v)", memory, err)
	}
}
