// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
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
		if err := registration.Fill(t.Context(), installed, podspec.DefaultNames(), []byte("CA")); err != nil {
			t.Fatal(err)
		}
		r := registration.Registration{
			Target: registration.Target{Namespace: "deviceshare-system", Service: "deviceshare-webhook", Port: 443},
			Names:  podspec.DefaultNames(), Excluded: []string{"deviceshare-system"},
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

// What a program may create outlives the chart.
func TestTheWebhookMayCreateNothing(t *testing.T) {
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
		if slices.Contains(rule.Verbs, "create") || len(rule.ResourceNames) == 0 {
			t.Errorf("%+v", rule)
		}
	}
}
