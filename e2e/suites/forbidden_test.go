// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
)

// forbidden is what none of the product's accounts may do, as "verb group/resource/subresource":
// each line alone would give who has the account's token more of the cluster than GPUs.
const forbidden = `
create /pods                    update /pods
patch /pods                     update /nodes
create /pods/exec               create /pods/attach
create /pods/portforward        update /pods/ephemeralcontainers
get /pods/log
create /nodes                   delete /nodes
get /nodes/proxy                create /nodes/proxy
get /secrets                    list /secrets
create /secrets                 delete /secrets
update /secrets                 patch /secrets
create /serviceaccounts         create /serviceaccounts/token
impersonate /users              impersonate /groups
impersonate /serviceaccounts    create /namespaces
delete /namespaces              create /configmaps
update /configmaps              delete /configmaps
create apps/deployments         patch apps/deployments
create apps/daemonsets          patch apps/daemonsets
create apps/statefulsets        patch apps/replicasets
create batch/jobs               create batch/cronjobs
create /persistentvolumes       delete /persistentvolumeclaims
create rbac.authorization.k8s.io/clusterroles
bind rbac.authorization.k8s.io/clusterroles
escalate rbac.authorization.k8s.io/clusterroles
create rbac.authorization.k8s.io/clusterrolebindings
create rbac.authorization.k8s.io/rolebindings
create admissionregistration.k8s.io/mutatingwebhookconfigurations
create admissionregistration.k8s.io/validatingwebhookconfigurations
delete admissionregistration.k8s.io/validatingwebhookconfigurations
patch admissionregistration.k8s.io/mutatingwebhookconfigurations
update admissionregistration.k8s.io/validatingwebhookconfigurations
patch admissionregistration.k8s.io/validatingadmissionpolicies
create admissionregistration.k8s.io/validatingadmissionpolicies
delete admissionregistration.k8s.io/validatingadmissionpolicies
delete admissionregistration.k8s.io/validatingadmissionpolicybindings
create certificates.k8s.io/certificatesigningrequests
approve certificates.k8s.io/signers
create apiextensions.k8s.io/customresourcedefinitions
* */*
`

// forbiddenToOthers is what only the scheduler may do: it makes room, and budgets hold it then.
const forbiddenToOthers = `
create /pods/eviction
`

// forbiddenToScheduler is what Volcano's own scheduler may do and this one need not.
const forbiddenToScheduler = `
patch /nodes                    patch /nodes/status
update batch.volcano.sh/jobs    delete batch.volcano.sh/jobs
delete scheduling.volcano.sh/queues
`

// testForbidden asks the API server what the accounts may do that they should not.
func testForbidden(t *testing.T, w *world) {
	ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
	defer cancel()
	asked := 0
	for component, list := range map[string]string{
		sandbox.Scheduler: forbidden + forbiddenToScheduler, sandbox.DevicePlugin: forbidden + forbiddenToOthers, sandbox.Webhook: forbidden + forbiddenToOthers,
	} {
		words := strings.Fields(list)
		for i := 0; i < len(words); i += 2 {
			group, rest, _ := strings.Cut(words[i+1], "/")
			resource, subresource, _ := strings.Cut(rest, "/")
			if w.may(ctx, t, component, authorizationv1.ResourceAttributes{
				Verb: words[i], Group: group, Resource: resource, Subresource: subresource, Namespace: metav1.NamespaceSystem,
			}) {
				t.Errorf("the account of %s may %s %s", component, words[i], words[i+1])
			}
			asked++
		}
	}
	// An account of another name may nothing at all, and would pass.
	if !w.may(ctx, t, sandbox.Scheduler, authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "binding", Namespace: "default"}) ||
		!w.may(ctx, t, sandbox.DevicePlugin, authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes"}) ||
		!w.may(ctx, t, sandbox.Webhook, authorizationv1.ResourceAttributes{Verb: "watch", Resource: "configmaps", Name: "volcano-vgpu-device-config"}) {
		t.Error("these are not the product's accounts")
	}
	t.Logf("%d things were asked", asked)
}

// may asks whether the account of a component may do something.
func (w *world) may(ctx context.Context, t *testing.T, component string, what authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: sandbox.User(component), Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + sandbox.Namespace, "system:authenticated"},
		ResourceAttributes: &what,
	}}
	answer, err := w.cluster.Client().AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Allowed
}
