// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// install writes both configurations as the chart does: without a bundle, without the
// condition that names resources, and in a way that fails when a field belongs to another.
func install(t *testing.T, c client.Client) {
	t.Helper()
	m, v := inCluster().mutatingConfig(nil), inCluster().validatingConfig(nil)
	m.Webhooks[0].ClientConfig.CABundle = nil
	for i := range v.Webhooks {
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

func TestAFilledConfigurationTrustsTheWebhookAndIsOtherwiseTheCharts(t *testing.T) {
	c := fake.NewFakeClient()
	install(t, c)
	for _, bundle := range []string{"CA", "another CA"} {
		if err := Fill(t.Context(), c, []byte(bundle)); err != nil {
			t.Fatal(err)
		}
		m, v := read(t, c)
		bundles := []string{string(m.Webhooks[0].ClientConfig.CABundle)}
		for _, w := range v.Webhooks {
			bundles = append(bundles, string(w.ClientConfig.CABundle))
		}
		if !slices.Equal(bundles, []string{bundle, bundle, bundle}) {
			t.Errorf("bundles %q", bundles)
		}
		if len(m.Webhooks[0].MatchConditions) != 2 || len(v.Webhooks[0].MatchConditions) != 2 || len(v.Webhooks[1].MatchConditions) != 2 || m.Webhooks[0].ClientConfig.Service.Name != "webhook" || len(m.Webhooks[0].Rules) != 1 {
			t.Errorf("what the chart has set is gone: %+v, %+v", m.Webhooks[0], v.Webhooks[1])
		}
	}
}

func TestTheChartCanBeAppliedAgainOverAFilledConfiguration(t *testing.T) {
	c := fake.NewFakeClient()
	install(t, c)
	if err := Fill(t.Context(), c, []byte("CA")); err != nil {
		t.Fatal(err)
	}
	filled, _ := read(t, c)
	install(t, c) // fails on a conflict
	if err := Fill(t.Context(), c, []byte("CA")); err != nil {
		t.Fatal(err)
	}
	if m, _ := read(t, c); string(m.Webhooks[0].ClientConfig.CABundle) != "CA" || m.ResourceVersion != filled.ResourceVersion {
		t.Errorf("an update of the chart changed the configuration: %+v", m.Webhooks[0])
	}
}

func TestNothingIsFilledThatTheChartDidNotCreate(t *testing.T) {
	c := fake.NewFakeClient()
	err := Fill(t.Context(), c, []byte("CA"))
	if err == nil || !strings.Contains(err.Error(), `create it with the chart`) {
		t.Errorf("got %v", err)
	}
	list := &admissionv1.MutatingWebhookConfigurationList{}
	if err := c.List(t.Context(), list); err != nil || len(list.Items) > 0 {
		t.Errorf("%v, %d configurations", err, len(list.Items))
	}
}

func TestOnlyPodsWithExtendedResourcesCauseACall(t *testing.T) {
	c := fake.NewFakeClient()
	install(t, c)
	m, _ := read(t, c)
	for name, want := range map[string]bool{"volcano.sh/vgpu-number": true, "example.com/renamed": true, "cpu": false, "hugepages-2Mi": false} {
		if got := match(t, m.Webhooks[0].MatchConditions, creationOf(asker(name))); got != want {
			t.Errorf("%s: matches %v, want %v", name, got, want)
		}
	}
}
