// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"deviceshare/plugins/admission/registration"
	"deviceshare/sharing/podspec"
)

// registered are the webhooks that the API server has, by their names.
func registered(t *testing.T, c client.Client) (map[string]admissionv1.MutatingWebhook, map[string]admissionv1.ValidatingWebhook) {
	t.Helper()
	m, v := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	for _, o := range []client.Object{m, v} {
		if err := c.Get(t.Context(), client.ObjectKey{Name: registration.Name}, o); err != nil {
			t.Fatal(err)
		}
	}
	byName := func(a, b admissionv1.MatchCondition) int { return strings.Compare(a.Name, b.Name) }
	mutating, validating := map[string]admissionv1.MutatingWebhook{}, map[string]admissionv1.ValidatingWebhook{}
	for _, w := range m.Webhooks {
		slices.SortFunc(w.MatchConditions, byName)
		mutating[w.Name] = w
	}
	for _, w := range v.Webhooks {
		slices.SortFunc(w.MatchConditions, byName)
		validating[w.Name] = w
	}
	return mutating, validating
}

// The rules of the webhook have one home, package registration. What the chart creates and the
// webhook fills in must be what a webhook without a chart writes itself.
func TestTheChartRegistersTheWebhookAsItWouldItself(t *testing.T) {
	for _, writers := range [][]any{{"system:serviceaccount:volcano-system:volcano-scheduler"}, {"somebody", "system:admin"}, {}} {
		installed := fake.NewFakeClient()
		for _, o := range decode(t, render(t, values{"webhook.placementWriters": writers})) {
			switch o.(type) {
			case *admissionv1.MutatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration:
				if err := installed.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := registration.Fill(t.Context(), installed, []byte("CA")); err != nil {
			t.Fatal(err)
		}
		r := registration.Registration{
			Target:   registration.Target{Namespace: "deviceshare-system", Service: "deviceshare-webhook", Port: 443},
			Excluded: []string{"deviceshare-system"}, Scheduler: "volcano", Names: podspec.DefaultNames(),
			Writers: []string{"system:serviceaccount:deviceshare-system:deviceshare-scheduler"},
		}
		for _, w := range writers {
			r.Writers = append(r.Writers, w.(string))
		}
		alone := fake.NewFakeClient()
		if err := registration.Apply(t.Context(), alone, r, []byte("CA")); err != nil {
			t.Fatal(err)
		}
		gotM, gotV := registered(t, installed)
		wantM, wantV := registered(t, alone)
		if !equality.Semantic.DeepEqual(gotM, wantM) {
			t.Errorf("the chart has\n%+v\nthe webhook writes\n%+v", gotM, wantM)
		}
		if !equality.Semantic.DeepEqual(gotV, wantV) {
			t.Errorf("the chart has\n%+v\nthe webhook writes\n%+v", gotV, wantV)
		}
	}
}

// Who has its token reads two ConfigMaps, and asks who may read its metrics. What judges pods, whom
// the API server trusts, and keys of CAs are nothing to it.
func TestTheWebhookMayChangeNothing(t *testing.T) {
	objects := decode(t, read(t, installFile))
	var rules []rbacv1.PolicyRule
	for _, r := range all[*rbacv1.ClusterRole](objects) {
		if r.Name == "deviceshare-webhook" {
			rules = append(rules, r.Rules...)
		}
	}
	for _, r := range all[*rbacv1.Role](objects) {
		if r.Name == "deviceshare-webhook" {
			rules = append(rules, r.Rules...)
		}
	}
	if len(rules) == 0 {
		t.Fatal("it has no rights")
	}
	for _, rule := range rules {
		if isReview(rule) {
			continue // a question, of which nothing is stored
		}
		reads := []string{"get", "list", "watch"}
		if slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains(reads, verb) }) ||
			!slices.Equal(rule.Resources, []string{"configmaps"}) || len(rule.ResourceNames) == 0 {
			t.Errorf("%+v", rule)
		}
	}
}

// The account of the Jobs changes two configurations and two Secrets by their names, and only Jobs
// run as it.
func TestWhoMakesCertificatesChangesWhatItsNameSays(t *testing.T) {
	const account = "deviceshare-webhook-ca"
	objects := decode(t, render(t, values{"unaskedDevices.policy": "void"}))
	allowed := map[string][]string{
		"mutatingwebhookconfigurations": {"deviceshare", "deviceshare-unasked"}, "validatingwebhookconfigurations": {"deviceshare", "deviceshare-unasked"},
		"secrets": {"deviceshare-webhook-certificates", "deviceshare-webhook-serving"},
	}
	var rules []rbacv1.PolicyRule
	for _, r := range all[*rbacv1.ClusterRole](objects) {
		if r.Name == account {
			rules = append(rules, r.Rules...)
		}
	}
	for _, r := range all[*rbacv1.Role](objects) {
		if r.Name == account {
			rules = append(rules, r.Rules...)
		}
	}
	if len(rules) != 2 {
		t.Errorf("%d rules", len(rules))
	}
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			if !slices.Equal(rule.ResourceNames, allowed[resource]) || slices.Contains(rule.Verbs, "create") || slices.Contains(rule.Verbs, "*") {
				t.Errorf("%+v", rule)
			}
		}
	}
	for _, d := range all[*appsv1.Deployment](objects) {
		if d.Spec.Template.Spec.ServiceAccountName == account {
			t.Errorf("Deployment %s runs as %s", d.Name, account)
		}
	}
	if len(all[*batchv1.Job](objects)) == 0 || len(all[*batchv1.CronJob](objects)) != 1 {
		t.Error("nobody makes certificates")
	}
}

func TestCertificatesFromElsewhereNeedNoJobs(t *testing.T) {
	const ca = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	for from, more := range map[string]values{
		"cert-manager": {},
		"existing":     {"webhook.certificates.secret": "mine", "webhook.certificates.caBundle": ca},
	} {
		t.Run(from, func(t *testing.T) {
			more["webhook.certificates.from"], more["unaskedDevices.policy"] = from, "void"
			text := render(t, more)
			if strings.Contains(text, "deviceshare-webhook-certificates") || strings.Contains(text, "kind: CronJob") {
				t.Error("a Job makes certificates all the same")
			}
			bundles, injected := 0, 0
			for _, line := range strings.Split(text, "\n") {
				switch {
				case strings.Contains(line, "caBundle: "+base64.StdEncoding.EncodeToString([]byte(ca))):
					bundles++
				case strings.Contains(line, "cert-manager.io/inject-ca-from: deviceshare-system/deviceshare-webhook"):
					injected++
				}
			}
			if want := map[string][2]int{"cert-manager": {0, 3}, "existing": {4, 0}}[from]; bundles != want[0] || injected != want[1] {
				t.Errorf("%d bundles in the configurations, %d of them are for cert-manager to fill", bundles, injected)
			}
		})
	}
}
