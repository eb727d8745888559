// SPDX-License-Identifier: Apache-2.0

// Package versions runs suites of the installed product on other versions of Kubernetes than the
// one that the product is compiled against, and shows what came of it. API server, controller
// manager and kubelet are of that version; containerd, Volcano and the product are as always.
// docs/versions.md has the results.
package versions

import (
	"fmt"
	"slices"
	"strings"
)

// Own is the version that every other test runs on.
const Own = "1.34.1"

// All are the other versions that are run.
func All() []string { return []string{"1.31.1", "1.32.2", "1.33.13", "1.35.4", "1.36.3"} }

// Suite is a suite of TestInstalledCluster that is run on each version.
type Suite struct {
	Name string
	Uses string // what of Kubernetes it would notice
}

// Suites are chosen so that all that the product uses of Kubernetes is used by one of them. Those
// of a cluster run in this order.
func Suites() []Suite {
	return []Suite{
		{"placement", "annotations on Bindings, extended resources in a node's status"},
		{"isolation", "PreStartContainer, CDI devices in the answer to Allocate"},
		{"waiting", "conditions in a pod's status, events"},
		{"webhook", "admission webhooks, their certificates"},
		{"identity", "podresources Get and List, the kubelet's checkpoint for init containers"},
		{"writes", "what is written for a pod, in the audit log"},
		{"chart", "every object of the chart, and of its options, in a server-side dry run"},
		{"hostile_user", "ValidatingAdmissionPolicy on pods"},
		{"rights", "RBAC of every request of the suites before"},
		{"unasked", "ValidatingAdmissionPolicy on ephemeral containers, by labels of namespaces, while a chart is upgraded"},
		{"plugin_token", "ValidatingAdmissionPolicy on nodes, the node's name in a token"},
		{"killed", "probes, restarts of DaemonSet and Deployment"},
		{"mps", "a host directory with mount propagation, host PIDs"},
		{"broken_checkpoint", "the kubelet's checkpoint of devices"},
		{"modes", "a pod in each mode, evictions"},
		{"schedulers", "Leases"},
		{"uninstall", "hook Jobs, finalizers, all four modes"},
	}
}

// Choose returns the versions that a user names: all where none is named, a minor version of All,
// such as 1.33, or any version with its patch.
func Choose(named []string) ([]string, error) {
	if len(named) == 0 {
		return All(), nil
	}
	var out []string
	for _, name := range named {
		if strings.Count(name, ".") == 2 {
			out = append(out, name)
			continue
		}
		known := append(All(), Own)
		i := slices.IndexFunc(known, func(v string) bool { return strings.HasPrefix(v, name+".") })
		if i < 0 {
			return nil, fmt.Errorf("Kubernetes %q: no version of it is listed (%s); name one with its patch", name, strings.Join(known, ", "))
		}
		out = append(out, known[i])
	}
	return out, nil
}
