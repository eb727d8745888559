// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"deviceshare/sharing/podspec"
)

// install writes both configurations as the chart does: without a bundle, without the
// condition that names resources, and in a way that fails when a field belongs to another.
func install(t *testing.T, c client.Client) {
	t.Helper()
	m, v := inCluster().mutating(nil), inCluster().validating(nil)
	named := func(c acadmission.MatchConditionApplyConfiguration) bool {
		return strings.HasPrefix(*c.Name, "asks-for")
	}
	m.Webhooks[0].MatchConditions = slices.DeleteFunc(m.Webhooks[0].MatchConditions, named)
	m.Webhooks[0].ClientConfig.CABundle = nil
	for i := range v.Webhooks {
		v.Webhooks[i].MatchConditions = slices.DeleteFunc(v.Webhooks[i].MatchConditions, named)
		v.Webhooks[i].ClientConfig.CABundle = nil
	}
	if err := c.Apply(t.Context(), m, client.FieldOwner("helm")); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), v, client.FieldOwner("helm")); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, c client.Client) (*admissionv1.MutatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration) {
	t.Helper()
	m, v := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	for _, o := range []client.Object{m, v} {
		if err := c.Get(t.Context(), client.ObjectKey{Name: Name}, o); err != nil {
			t.Fatal(err)
		}
	}
	return m, v
}

// conditionsOf are the expressions of a webhook by their names.
func conditionsOf(conditions []admissionv1.MatchCondition) map[string]string {
	out := map[string]string{}
	for _, c := range conditions {
		out[c.Name] = c.Expression
	}
	return out
}

func TestAFilledConfigurationTrustsTheWebhookAndNamesItsResources(t *testing.T) {
	c := fake.NewFakeClient()
	install(t, c)
	renamed := podspec.Names{Number: "example.com/gpu", Memory: "example.com/mem", Cores: "example.com/cores"}
	for _, names := range []podspec.Names{podspec.DefaultNames(), renamed} {
		if err := Fill(t.Context(), c, names, []byte("CA")); err != nil {
			t.Fatal(err)
		}
		m, v := read(t, c)
		bundles := []string{string(m.Webhooks[0].ClientConfig.CABundle)}
		for _, w := range v.Webhooks {
			bundles = append(bundles, string(w.ClientConfig.CABundle))
		}
		if !slices.Equal(bundles, []string{"CA", "CA", "CA"}) {
			t.Errorf("bundles %q", bundles)
		}
		of, other := conditionsOf(m.Webhooks[0].MatchConditions), conditionsOf(v.Webhooks[0].MatchConditions)
		if len(of) != 3 || len(other) != 3 || !strings.Contains(of["asks-for-gpu-shares-or-claims-some"], names.Number) ||
			!strings.Contains(other["asks-for-gpu-shares"], names.Number) {
			t.Errorf("conditions with %s: %q and %q", names.Number, of, other)
		}
		if len(v.Webhooks[1].MatchConditions) != 2 || m.Webhooks[0].ClientConfig.Service.Name != "webhook" || len(m.Webhooks[0].Rules) != 1 {
			t.Errorf("what the chart has set is gone: %+v, %+v", m.Webhooks[0], v.Webhooks[1])
		}
	}
}

func TestTheChartCanBeAppliedAgainOverAFilledConfiguration(t *testing.T) {
	c := fake.NewFakeClient()
	install(t, c)
	if err := Fill(t.Context(), c, podspec.DefaultNames(), []byte("CA")); err != nil {
		t.Fatal(err)
	}
	filled, _ := read(t, c)
	install(t, c) // fails on a conflict
	if err := Fill(t.Context(), c, podspec.DefaultNames(), []byte("CA")); err != nil {
		t.Fatal(err)
	}
	if m, _ := read(t, c); string(m.Webhooks[0].ClientConfig.CABundle) != "CA" || m.ResourceVersion != filled.ResourceVersion {
		t.Errorf("an update of the chart changed the configuration: %+v", m.Webhooks[0])
	}
}

func TestNothingIsFilledThatTheChartDidNotCreate(t *testing.T) {
	c := fake.NewFakeClient()
	err := Fill(t.Context(), c, podspec.DefaultNames(), []byte("CA"))
	if err == nil || !strings.Contains(err.Error(), `create it with the chart`) {
		t.Errorf("got %v", err)
	}
	list := &admissionv1.MutatingWebhookConfigurationList{}
	if err := c.List(t.Context(), list); err != nil || len(list.Items) > 0 {
		t.Errorf("%v, %d configurations", err, len(list.Items))
	}
}

// Before the webhook has run for the first time the chart's conditions stand alone.
func TestBeforeItIsFilledOnlyPodsWithExtendedResourcesCauseACall(t *testing.T) {
	c := fake.NewFakeClient()
	install(t, c)
	m, _ := read(t, c)
	for name, want := range map[string]bool{"volcano.sh/vgpu-number": true, "example.com/renamed": true, "cpu": false, "hugepages-2Mi": false} {
		if got := match(t, m.Webhooks[0].MatchConditions, creationOf(asker(name))); got != want {
			t.Errorf("%s: matches %v, want %v", name, got, want)
		}
	}
}
