// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	"deviceshare/e2e/sandbox"
)

// testRights looks back at all that the other suites did: the components ran as
// the accounts of the manifests, and the roles there gave them all they asked for.
func testRights(t *testing.T, w *world) {
	events, err := w.cluster.AuditLog()
	if err != nil {
		t.Fatal(err)
	}
	refused, asked := map[string]int{}, map[string]int{}
	for _, e := range events {
		request := fmt.Sprintf("%s: %s %s", e.User.Username, e.Verb, e.ObjectRef.Resource)
		if e.ObjectRef.Subresource != "" {
			request += "/" + e.ObjectRef.Subresource
		}
		asked[request]++
		if e.ResponseStatus.Code == http.StatusForbidden && ours(e) {
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
}

// ours tells the requests of this project's components.
func ours(e sandbox.AuditEvent) bool {
	return slices.Contains([]string{sandbox.User(sandbox.Scheduler), sandbox.User(sandbox.DevicePlugin), sandbox.User(sandbox.Webhook)},
		e.User.Username)
}
