// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"deviceshare/deviceplugin/modes/mps"
	"deviceshare/deviceplugin/node"
)

// tenantFlags are the flags that say which containers share a device in mode mps.
type tenantFlags struct {
	// Users is one (containers of one user id at a time) or any. Namespaces is namespace (pods of
	// one at a time) or any. Root is refuse or allow. Pipe is how clients see the directory in
	// which they find their daemon: rw or ro.
	Users, Namespaces, Root, Pipe string
}

// defaultTenantFlags trust each other least.
func defaultTenantFlags() tenantFlags {
	return tenantFlags{Users: "one", Namespaces: "namespace", Root: "refuse", Pipe: "rw"}
}

func (t *tenantFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&t.Users, "mps-users", t.Users, "who shares a device in mode mps: one (containers of one user id at a time) or any (all, as clients of root's server)")
	f.StringVar(&t.Namespaces, "mps-tenants", t.Namespaces, "whose pods share a device in mode mps: namespace (those of one namespace at a time) or any (all)")
	f.StringVar(&t.Root, "mps-root-user", t.Root,
		"what becomes of containers that run as root in mode mps, or as a user that the pod does not name: refuse, or allow")
	f.StringVar(&t.Pipe, "mps-pipe", t.Pipe, "how containers see the directory of their MPS daemon's sockets: rw, or ro where NVIDIA's client needs no more")
}

func (t *tenantFlags) findMistakes() []error {
	var wrong []error
	for _, x := range []struct {
		flag, value string
		want        []string
	}{
		{"mps-users", t.Users, []string{"one", "any"}},
		{"mps-tenants", t.Namespaces, []string{"namespace", "any"}},
		{"mps-root-user", t.Root, []string{"refuse", "allow"}},
		{"mps-pipe", t.Pipe, []string{"rw", "ro"}},
	} {
		if !slices.Contains(x.want, x.value) {
			wrong = append(wrong, fmt.Errorf("--%s=%q: want %s", x.flag, x.value, strings.Join(x.want, " or ")))
		}
	}
	return wrong
}

// forPreparer is what the node's half of the mode allows.
func (t *tenantFlags) forPreparer() mps.Tenants {
	return mps.Tenants{MultiUser: t.Users == "any", MultiNamespace: t.Namespaces == "any", RootUser: t.Root == "allow", ReadOnlyPipe: t.Pipe == "ro"}
}

// forScheduler is what the scheduler is told of that.
func (t *tenantFlags) forScheduler() node.Tenants {
	return node.Tenants{OneUser: t.Users == "one", OneNamespace: t.Namespaces == "namespace", NoRoot: t.Root == "refuse"}
}
