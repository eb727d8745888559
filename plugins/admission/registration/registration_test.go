// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"deviceshare/sharing/podspec"
)

func inCluster() Registration {
	return Registration{
		Target:   Target{Namespace: "ns", Service: "webhook", Port: 443},
		Excluded: []string{"ns", "kube-system"}, Writers: []string{"the-scheduler", "it's \"quoted\""},
		Scheduler: "volcano", Names: podspec.DefaultNames(),
	}
}

func applied(t *testing.T, c client.Client, r Registration, bundle string) (*admissionv1.MutatingWebhook, *admissionv1.ValidatingWebhook) {
	t.Helper()
	if err := Apply(t.Context(), c, r, []byte(bundle)); err != nil {
		t.Fatal(err)
	}
	m, v := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	for _, o := range []client.Object{m, v} {
		if err := c.Get(t.Context(), client.ObjectKey{Name: Name}, o); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.Webhooks) != 1 || len(v.Webhooks) != 2 {
		t.Fatalf("%d mutating and %d validating webhooks, want one and two", len(m.Webhooks), len(v.Webhooks))
	}
	return &m.Webhooks[0], &v.Webhooks[0]
}

func TestTheWebhookFailsOpenAndFast(t *testing.T) {
	m, v := applied(t, fake.NewFakeClient(), inCluster(), "CA")
	for half, got := range map[string]struct {
		failure *admissionv1.FailurePolicyType
		seconds *int32
		effects *admissionv1.SideEffectClass
	}{
		"mutating":   {m.FailurePolicy, m.TimeoutSeconds, m.SideEffects},
		"validating": {v.FailurePolicy, v.TimeoutSeconds, v.SideEffects},
	} {
		if *got.failure != admissionv1.Ignore || *got.seconds != 3 || *got.effects != admissionv1.SideEffectClassNone {
			t.Errorf("%s: %v, %v seconds, %v", half, *got.failure, *got.seconds, *got.effects)
		}
	}
	if *m.ReinvocationPolicy != admissionv1.IfNeededReinvocationPolicy {
		t.Error("containers that other webhooks add would not be completed")
	}
}

// guardOf returns the webhook for pods that exist.
func guardOf(t *testing.T, r Registration) *admissionv1.ValidatingWebhook {
	t.Helper()
	c, v := fake.NewFakeClient(), &admissionv1.ValidatingWebhookConfiguration{}
	applied(t, c, r, "CA")
	if err := c.Get(t.Context(), client.ObjectKey{Name: Name}, v); err != nil {
		t.Fatal(err)
	}
	return &v.Webhooks[1]
}

func TestChangesOfPlacementsAreRefusedWhileNobodyAnswers(t *testing.T) {
	g := guardOf(t, inCluster())
	if *g.FailurePolicy != admissionv1.Fail || *g.TimeoutSeconds != 3 || *g.SideEffects != admissionv1.SideEffectClassNone ||
		*g.ClientConfig.Service.Path != "/guard" || len(g.Rules) != 1 ||
		!slices.Equal(g.Rules[0].Operations, []admissionv1.OperationType{admissionv1.Update}) || !slices.Equal(g.Rules[0].Resources, []string{"pods"}) {
		t.Errorf("%+v", g)
	}
	if len(g.NamespaceSelector.MatchExpressions) != 1 {
		t.Error("it stands in the way of system namespaces")
	}
}

func TestOnlyTheCreationOfPodsOutsideSystemNamespacesIsLookedAt(t *testing.T) {
	m, v := applied(t, fake.NewFakeClient(), inCluster(), "CA")
	for _, rules := range [][]admissionv1.RuleWithOperations{m.Rules, v.Rules} {
		if len(rules) != 1 || !slices.Equal(rules[0].Resources, []string{"pods"}) ||
			!slices.Equal(rules[0].Operations, []admissionv1.OperationType{admissionv1.Create}) {
			t.Errorf("rules %+v", rules)
		}
	}
	want := []string{"kube-node-lease", "kube-public", "kube-system", "ns"}
	if got := m.NamespaceSelector.MatchExpressions[0].Values; !slices.Equal(got, want) {
		t.Errorf("excluded namespaces %q, want %q, each once", got, want)
	}
}

func TestWhereTheAPIServerCalls(t *testing.T) {
	m, v := applied(t, fake.NewFakeClient(), inCluster(), "CA")
	if s := m.ClientConfig.Service; s == nil || s.Name != "webhook" || s.Namespace != "ns" || *s.Path != "/mutate" || *s.Port != 443 {
		t.Errorf("service %+v", s)
	}
	if s := v.ClientConfig.Service; s == nil || *s.Path != "/validate" {
		t.Errorf("service %+v", s)
	}
	r := inCluster()
	r.Target = Target{Address: "127.0.0.1:9443"}
	m, v = applied(t, fake.NewFakeClient(), r, "CA")
	if *m.ClientConfig.URL != "https://127.0.0.1:9443/mutate" || *v.ClientConfig.URL != "https://127.0.0.1:9443/validate" {
		t.Errorf("URLs %q and %q", *m.ClientConfig.URL, *v.ClientConfig.URL)
	}
}

func TestANewBundleReplacesTheOldOneAndRepeatingChangesNothing(t *testing.T) {
	c := fake.NewFakeClient()
	applied(t, c, inCluster(), "old")
	m, v := applied(t, c, inCluster(), "old and new")
	if string(m.ClientConfig.CABundle) != "old and new" || string(v.ClientConfig.CABundle) != "old and new" {
		t.Errorf("bundles %q and %q", m.ClientConfig.CABundle, v.ClientConfig.CABundle)
	}
	r := inCluster()
	r.Target = Target{Address: "127.0.0.1:9443"}
	if m, _ = applied(t, c, r, "new"); m.ClientConfig.Service != nil || m.ClientConfig.URL == nil {
		t.Error("moving from a Service to an address leaves both")
	}
}

func TestAFailureNamesTheConfigurationThatFailed(t *testing.T) {
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		c := interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
				if k, ok := o.(interface{ GetKind() *string }); ok && *k.GetKind() == kind {
					return context.DeadlineExceeded
				}
				return c.Apply(ctx, o, opts...)
			}})
		err := Apply(t.Context(), c, inCluster(), []byte("CA"))
		if want := `apply ` + kind + ` "deviceshare": context deadline exceeded`; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestTargetsAndTheNamesTheyAreCalledBy(t *testing.T) {
	tests := map[string]struct {
		target Target
		hosts  []string // nil: refused
	}{
		"a Service":              {Target{Namespace: "ns", Service: "w", Port: 443}, []string{"w.ns.svc", "w.ns", "w.ns.svc.cluster.local"}},
		"an IPv4 address":        {Target{Address: "127.0.0.1:9443"}, []string{"127.0.0.1"}},
		"an IPv6 address":        {Target{Address: "[::1]:9443"}, []string{"::1"}},
		"a host name":            {Target{Address: "hook.example:9443"}, []string{"hook.example"}},
		"nothing":                {Target{}, nil},
		"both":                   {Target{Namespace: "ns", Service: "w", Port: 443, Address: "127.0.0.1:1"}, nil},
		"no port of the address": {Target{Address: "127.0.0.1"}, nil},
		"an empty port":          {Target{Address: "127.0.0.1:"}, nil},
		"no host":                {Target{Address: ":9443"}, nil},
		"a URL for an address":   {Target{Address: "https://127.0.0.1:9443"}, nil},
		"a Service of nowhere":   {Target{Service: "w", Port: 443}, nil},
		"a Service without port": {Target{Namespace: "ns", Service: "w"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.target.Validate()
			if (err == nil) != (tt.hosts != nil) {
				t.Fatalf("Validate: %v", err)
			}
			if err == nil && !slices.Equal(tt.target.Hosts(), tt.hosts) {
				t.Errorf("hosts %q, want %q", tt.target.Hosts(), tt.hosts)
			}
		})
	}
}
