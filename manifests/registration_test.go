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
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	webhook "deviceshare/plugins/admission"
	"deviceshare/sharing/wire"
)

// registration is for what the API server calls the webhook.
type registration struct {
	mutate          admissionv1.MutatingWebhook
	validate, guard admissionv1.ValidatingWebhook
}

// newPods are the conditions for new pods, which both halves have.
func (r registration) newPods(t *testing.T) []admissionv1.MatchCondition {
	t.Helper()
	if !equality.Semantic.DeepEqual(r.mutate.MatchConditions, r.validate.MatchConditions) {
		t.Errorf("pods are completed if\n%+v\nand judged if\n%+v", r.mutate.MatchConditions, r.validate.MatchConditions)
	}
	return r.mutate.MatchConditions
}

// registered is what the chart registers.
func registered(t *testing.T, v values) (out registration) {
	t.Helper()
	for _, o := range decode(t, render(t, v)) {
		switch o := o.(type) {
		case *admissionv1.MutatingWebhookConfiguration:
			if o.Name == "deviceshare" && len(o.Webhooks) == 1 {
				out.mutate = o.Webhooks[0]
			}
		case *admissionv1.ValidatingWebhookConfiguration:
			if o.Name == "deviceshare" && len(o.Webhooks) == 2 {
				out.validate, out.guard = o.Webhooks[0], o.Webhooks[1]
			}
		}
	}
	if out.mutate.Name == "" || out.validate.Name == "" || out.guard.Name == "" {
		t.Fatal("the chart does not register one mutating and two validating webhooks")
	}
	return out
}

func TestTheWebhookFailsOpenAndFast(t *testing.T) {
	r := registered(t, nil)
	for half, got := range map[string]struct {
		failure *admissionv1.FailurePolicyType
		seconds *int32
		effects *admissionv1.SideEffectClass
	}{
		"mutating":   {r.mutate.FailurePolicy, r.mutate.TimeoutSeconds, r.mutate.SideEffects},
		"validating": {r.validate.FailurePolicy, r.validate.TimeoutSeconds, r.validate.SideEffects},
	} {
		if *got.failure != admissionv1.Ignore || *got.seconds != 3 || *got.effects != admissionv1.SideEffectClassNone {
			t.Errorf("%s: %v, %v seconds, %v", half, *got.failure, *got.seconds, *got.effects)
		}
	}
	if *r.mutate.ReinvocationPolicy != admissionv1.IfNeededReinvocationPolicy {
		t.Error("containers that other webhooks add would not be completed")
	}
}

func TestChangesOfPlacementsAreRefusedWhileNobodyAnswers(t *testing.T) {
	g := registered(t, nil).guard
	if *g.FailurePolicy != admissionv1.Fail || *g.TimeoutSeconds != 3 || *g.SideEffects != admissionv1.SideEffectClassNone {
		t.Errorf("%+v", g)
	}
}

func TestTheWebhookIsCalledForPodsOutsideSystemNamespacesByItsService(t *testing.T) {
	r := registered(t, nil)
	for path, got := range map[string]struct {
		rules  []admissionv1.RuleWithOperations
		spaces *metav1.LabelSelector
		client admissionv1.WebhookClientConfig
		on     admissionv1.OperationType
	}{
		webhook.MutatePath:   {r.mutate.Rules, r.mutate.NamespaceSelector, r.mutate.ClientConfig, admissionv1.Create},
		webhook.ValidatePath: {r.validate.Rules, r.validate.NamespaceSelector, r.validate.ClientConfig, admissionv1.Create},
		webhook.GuardPath:    {r.guard.Rules, r.guard.NamespaceSelector, r.guard.ClientConfig, admissionv1.Update},
	} {
		if len(got.rules) != 1 || !slices.Equal(got.rules[0].Resources, []string{"pods"}) || !slices.Equal(got.rules[0].Operations, []admissionv1.OperationType{got.on}) {
			t.Errorf("%s: rules %+v", path, got.rules)
		}
		want := []string{"deviceshare-system", "kube-node-lease", "kube-public", "kube-system"}
		if e := got.spaces.MatchExpressions; len(e) != 1 || e[0].Operator != metav1.LabelSelectorOpNotIn || !slices.Equal(e[0].Values, want) {
			t.Errorf("%s: namespaces %+v, want none of %q", path, e, want)
		}
		if s := got.client.Service; s == nil || s.Name != "deviceshare-webhook" || s.Namespace != "deviceshare-system" || *s.Path != path || *s.Port != 443 {
			t.Errorf("%s: service %+v", path, s)
		}
	}
}

// A key of ours that is known causes no call of its own, unless a pod holds devices by it; any
// other that begins as ours do does. Beside devices each key that a user can write causes a call.
func TestTheChartKnowsEveryKey(t *testing.T) {
	called := matcher(t, registered(t, nil).newPods(t))
	annotated := func(p *corev1.Pod, key string) *corev1.Pod {
		p.Annotations = map[string]string{key: "x"}
		return p
	}
	for _, key := range append(wire.UserKeys(), wire.WrittenKeys()...) {
		if want := slices.Contains(webhook.PlacementKeys(), key); called(creationOf(annotated(asker("cpu"), key))) != want {
			t.Errorf("a pod that asks for nothing and has %s causes a call: %v", key, !want)
		}
		if wire.IsOurs(key) && !called(creationOf(annotated(asker("cpu"), key+"x"))) {
			t.Errorf("%sx causes no call", key)
		}
	}
	for _, key := range wire.UserKeys() {
		if !called(creationOf(annotated(rightPod(wire.ResourceNumber, "1"), key))) {
			t.Errorf("nobody reads %s of a pod", key)
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

// The account of the Jobs changes configurations and one Secret by their names, and only Jobs run
// as it.
func TestWhoMakesCertificatesChangesWhatItsNameSays(t *testing.T) {
	const account = "deviceshare-webhook-ca"
	objects := decode(t, render(t, values{"unaskedDevices.policy": "void"}))
	allowed := map[string][]string{
		"mutatingwebhookconfigurations": {"deviceshare", "deviceshare-unasked"}, "validatingwebhookconfigurations": {"deviceshare", "deviceshare-unasked"},
		"secrets": {"deviceshare-webhook-serving"},
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
			if strings.Contains(text, "deviceshare-webhook-serving") || strings.Contains(text, "kind: CronJob") {
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
