// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// charts is a configuration as the chart applies it, in a way that fails when a field belongs to
// another.
func charts(t *testing.T, c client.Client) *admissionv1.MutatingWebhookConfiguration {
	t.Helper()
	wanted := acadmission.MutatingWebhookConfiguration("deviceshare").WithWebhooks(acadmission.MutatingWebhook().WithName("mutate").
		WithClientConfig(acadmission.WebhookClientConfig().WithService(acadmission.ServiceReference().WithNamespace("ns").WithName("webhook"))).
		WithMatchConditions(acadmission.MatchCondition().WithName("asks").WithExpression("true")).
		WithFailurePolicy(admissionv1.Ignore))
	if err := c.Apply(t.Context(), wanted, client.FieldOwner("helm")); err != nil {
		t.Fatal(err)
	}
	out := &admissionv1.MutatingWebhookConfiguration{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "deviceshare"}, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAConfigurationTrustsTheBundleAndIsOtherwiseTheCharts(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	charts(t, c)
	i := newTestInstaller(c, testingclock.NewFakeClock(epoch))
	i.Configurations = []Configuration{{"MutatingWebhookConfiguration", "deviceshare"}}
	for _, bundle := range []string{"one", "another"} {
		for _, want := range []bool{true, false} {
			if changed, err := i.publishBundle(t.Context(), []byte(bundle)); err != nil || changed != want {
				t.Errorf("%s: changed %v, %v, want %v", bundle, changed, err, want)
			}
		}
		m := charts(t, c) // an upgrade of the chart; it fails on a conflict
		hook := m.Webhooks[0]
		if len(m.Webhooks) != 1 || string(hook.ClientConfig.CABundle) != bundle || hook.ClientConfig.Service.Name != "webhook" ||
			len(hook.MatchConditions) != 1 || *hook.FailurePolicy != admissionv1.Ignore {
			t.Errorf("%+v", hook)
		}
	}
}

func TestNothingIsPublishedInWhatTheChartDidNotCreate(t *testing.T) {
	c := installed(nil)
	i := newTestInstaller(c, testingclock.NewFakeClock(epoch))
	i.Configurations = Configurations(true)
	err := i.Sync(t.Context())
	if err == nil || !strings.Contains(err.Error(), "MutatingWebhookConfiguration deviceshare-unasked, which the chart makes") {
		t.Errorf("got %v", err)
	}
	list := &admissionv1.MutatingWebhookConfigurationList{}
	if err := c.List(t.Context(), list); err != nil || len(list.Items) != 1 {
		t.Errorf("%v, %d configurations", err, len(list.Items))
	}
	if secretOf(t, c)[ServingCertKey] != nil {
		t.Error("a certificate is served that not every API server trusts")
	}
}
