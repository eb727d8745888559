// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
)

// audited are the components whose accounts the audit log tells.
func audited() []string { return []string{sandbox.Scheduler, sandbox.DevicePlugin, sandbox.Webhook} }

// right is one verb of a component's account for one resource.
type right struct{ component, verb, group, resource string }

// String is the right as errors and unused name it.
func (r right) String() string {
	return fmt.Sprintf("%s: %s %s/%s", r.component, r.verb, r.group, r.resource)
}

// unused are rights that no suite makes a component use, and why they are there all the same.
func unused() map[string]string {
	const (
		shuffle = "action shuffle, which the shipped configuration leaves out"
		volumes = "pods with volumes that wait for their first consumer"
		claims  = "pods with resource claims"
		flags   = "an option of Volcano's scheduler that the chart leaves off"
	)
	return map[string]string{
		"scheduler: delete /pods":                                 shuffle,
		"scheduler: update /persistentvolumes":                    volumes,
		"scheduler: update /persistentvolumeclaims":               volumes,
		"scheduler: list storage.k8s.io/csidrivers":               flags,
		"scheduler: watch storage.k8s.io/csidrivers":              flags,
		"scheduler: list storage.k8s.io/csistoragecapacities":     flags,
		"scheduler: watch storage.k8s.io/csistoragecapacities":    flags,
		"scheduler: get resource.k8s.io/resourceclaims":           claims,
		"scheduler: update resource.k8s.io/resourceclaims":        claims,
		"scheduler: update resource.k8s.io/resourceclaims/status": claims,
		"scheduler: patch resource.k8s.io/resourceclaims/status":  claims,
		"scheduler: list resource.k8s.io/devicetaintrules":        flags,
		"scheduler: watch resource.k8s.io/devicetaintrules":       flags,
		"scheduler: delete nodeinfo.volcano.sh/numatopologies":    "a node that Volcano's resource exporter described leaves",
		"scheduler: list shard.volcano.sh/nodeshards":             flags,
		"scheduler: watch shard.volcano.sh/nodeshards":            flags,
		"scheduler: update shard.volcano.sh/nodeshards/status":    flags,
	}
}

// rights are what the components of both clusters were given, and what they used.
type rights struct {
	mu          sync.Mutex
	given, used map[right]bool
	// clusters is how many were looked at.
	clusters int
}

// test looks back at all that the other suites of a cluster did: the components ran as the accounts
// of the manifests, and the roles there gave them all they asked for.
func (r *rights) test(t *testing.T, w *world) {
	events, err := w.cluster.AuditLog()
	if err != nil {
		t.Fatal(err)
	}
	refused, asked := map[string]int{}, map[string]int{}
	used := map[right]bool{}
	for _, e := range events {
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		request := fmt.Sprintf("%s: %s %s", e.User.Username, e.Verb, resource)
		asked[request]++
		i := slices.IndexFunc(audited(), func(c string) bool { return e.User.Username == sandbox.User(c) })
		if i < 0 {
			continue
		}
		used[right{audited()[i], e.Verb, e.ObjectRef.APIGroup, resource}] = true
		if e.ResponseStatus.Code == http.StatusForbidden {
			refused[fmt.Sprintf("%s %s/%s", request, e.ObjectRef.Namespace, e.ObjectRef.Name)]++
		}
	}
	for _, request := range slices.Sorted(maps.Keys(refused)) {
		t.Errorf("the roles of manifests/install refuse %s (%d times)", request, refused[request])
	}
	// One of each component, so that an audit log without them does not pass.
	for _, request := range []string{
		sandbox.User(sandbox.Scheduler) + ": create pods/binding",
		sandbox.User(sandbox.DevicePlugin) + ": patch nodes/status",
		sandbox.User(sandbox.Webhook) + ": watch configmaps",
	} {
		if asked[request] == 0 {
			t.Errorf("the audit log has no %s", request)
		}
	}
	t.Logf("%d kinds of requests, %d of them refused", len(asked), len(refused))
	r.note(rightsGiven(t, w), used)
}

func (r *rights) note(given, used map[right]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clusters == 0 {
		r.given, r.used = map[right]bool{}, map[right]bool{}
	}
	r.clusters++
	maps.Copy(r.given, given)
	maps.Copy(r.used, used)
}

// areUsed expects that the accounts may do nothing that no component does: who has an account's
// token has that too. It takes every suite of both clusters to say so.
func (r *rights) areUsed(t *testing.T) {
	why := unused()
	for _, g := range slices.SortedFunc(maps.Keys(r.given), func(a, b right) int { return strings.Compare(a.String(), b.String()) }) {
		reason, kept := why[g.String()]
		switch {
		case !r.used[g] && !kept:
			t.Errorf("no suite makes a component use %q: take it out of the role, or say in unused why it is there", g)
		case r.used[g] && kept:
			t.Logf("%q is used today, and unused says that it is there for %s", g, reason)
		}
		delete(why, g.String())
	}
	for name := range why {
		t.Errorf("unused gives a reason for %q, which no account has", name)
	}
	t.Logf("%d rights were given, %d are kept for what no suite does", len(r.given), len(unused()))
}

// rightsGiven are the rights of the components' accounts, as they were installed.
func rightsGiven(t *testing.T, w *world) map[right]bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
	defer cancel()
	client := w.cluster.Client().RbacV1()
	all := map[right]bool{}
	for _, component := range audited() {
		name := "deviceshare-" + component // of the account, its roles and their bindings
		inCluster, err := client.ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		inNamespaces, err := client.Roles("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil {
			t.Fatal(err)
		}
		rules := inCluster.Rules
		for i := range inNamespaces.Items {
			rules = append(rules, inNamespaces.Items[i].Rules...)
		}
		for i := range rules {
			addRights(all, component, &rules[i])
		}
	}
	return all
}

func addRights(all map[right]bool, component string, rule *rbacv1.PolicyRule) {
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				all[right{component, verb, group, resource}] = true
			}
		}
	}
}
