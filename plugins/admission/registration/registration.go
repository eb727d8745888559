// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	acmeta "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"deviceshare/plugins/admission"
	"deviceshare/sharing/podspec"
)

const (
	// Name is the name of both configurations.
	Name = "deviceshare"
	// Timeout bounds how long the creation of a pod can wait for us.
	Timeout = 3 * time.Second

	mutateName   = "mutate.deviceshare.volcano.sh"
	validateName = "validate.deviceshare.volcano.sh"
	guardName    = "guard.deviceshare.volcano.sh"
	fieldManager = client.FieldOwner("deviceshare-webhook")
)

// Target is where the API server finds the webhook: a Service of the cluster, or
// an address (host:port) that is reached without the cluster's network. Exactly
// one of Service and Address is set.
type Target struct {
	Namespace, Service string
	Port               int32
	Address            string
}

// Validate refuses a target that the API server could not call.
func (t Target) Validate() error {
	if (t.Service == "") == (t.Address == "") {
		return errors.New("give either the name of a Service or an address, and not both")
	}
	if t.Service != "" {
		if t.Namespace == "" || t.Port < 1 {
			return fmt.Errorf("service %q: its namespace and port are needed", t.Service)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(t.Address)
	if err != nil {
		return fmt.Errorf("address %q: %w: want host:port", t.Address, err)
	}
	if host == "" || port == "" {
		return fmt.Errorf("address %q: want host:port", t.Address)
	}
	return nil
}

// Hosts are the names and addresses that the serving certificate must have. The
// target must be valid.
func (t Target) Hosts() []string {
	if t.Address != "" {
		host, _, err := net.SplitHostPort(t.Address)
		if err != nil {
			return nil
		}
		return []string{host}
	}
	name := t.Service + "." + t.Namespace
	return []string{name + ".svc", name, name + ".svc.cluster.local"}
}

func (t Target) clientConfig(path string, bundle []byte) *acadmission.WebhookClientConfigApplyConfiguration {
	c := acadmission.WebhookClientConfig().WithCABundle(bundle...)
	if t.Address != "" {
		u := url.URL{Scheme: "https", Host: t.Address, Path: path}
		return c.WithURL(u.String())
	}
	return c.WithService(acadmission.ServiceReference().
		WithNamespace(t.Namespace).WithName(t.Service).WithPath(path).WithPort(t.Port))
}

// Registration is what is to be registered.
type Registration struct {
	Target Target
	// Excluded are the namespaces whose pods are never looked at.
	Excluded []string
	// Writers are the users whose updates of placements are never looked at.
	Writers []string
	// Scheduler is the name that pods say which are not looked at if they are plainly right.
	Scheduler string
	// Names are those under which such pods ask.
	Names podspec.Names
}

// SystemNamespaces are excluded always: a webhook must not be able to stand in
// the way of the components that it needs itself.
func SystemNamespaces() []string {
	return []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}
}

// Apply writes both configurations whole, with the given CA bundle, by server-side apply. It
// is for a webhook outside of the cluster, which no chart registers. When they are as wanted
// already, nothing is written in the cluster.
func Apply(ctx context.Context, c client.Client, r Registration, bundle []byte) error {
	return applyConfigurations(ctx, c, r.mutatingConfig(bundle), r.validatingConfig(bundle))
}

func applyConfigurations(ctx context.Context, c client.Client, m *acadmission.MutatingWebhookConfigurationApplyConfiguration,
	v *acadmission.ValidatingWebhookConfigurationApplyConfiguration) error {
	if err := c.Apply(ctx, m, fieldManager, client.ForceOwnership); err != nil {
		return fmt.Errorf("apply MutatingWebhookConfiguration %q: %w", Name, err)
	}
	if err := c.Apply(ctx, v, fieldManager, client.ForceOwnership); err != nil {
		return fmt.Errorf("apply ValidatingWebhookConfiguration %q: %w", Name, err)
	}
	return nil
}

// mutatingConfig is called again for a pod that a later webhook has changed: that may
// have added a container.
func (r Registration) mutatingConfig(bundle []byte) *acadmission.MutatingWebhookConfigurationApplyConfiguration {
	return acadmission.MutatingWebhookConfiguration(Name).WithWebhooks(acadmission.MutatingWebhook().
		WithName(mutateName).
		WithClientConfig(r.Target.clientConfig(admission.MutatePath, bundle)).
		WithRules(podRule(admissionv1.Create)).
		WithNamespaceSelector(r.namespaceSelector()).
		WithMatchConditions(reviewCondition(r.Scheduler, r.Names), notMirror()).
		WithReinvocationPolicy(admissionv1.IfNeededReinvocationPolicy).
		WithFailurePolicy(admissionv1.Ignore).
		WithMatchPolicy(admissionv1.Equivalent).
		WithSideEffects(admissionv1.SideEffectClassNone).
		WithTimeoutSeconds(int32(Timeout.Seconds())).
		WithAdmissionReviewVersions("v1"))
}

func (r Registration) validatingConfig(bundle []byte) *acadmission.ValidatingWebhookConfigurationApplyConfiguration {
	return acadmission.ValidatingWebhookConfiguration(Name).WithWebhooks(acadmission.ValidatingWebhook().
		WithName(validateName).
		WithClientConfig(r.Target.clientConfig(admission.ValidatePath, bundle)).
		WithRules(podRule(admissionv1.Create)).
		WithNamespaceSelector(r.namespaceSelector()).
		WithMatchConditions(reviewCondition(r.Scheduler, r.Names), notMirror()).
		WithFailurePolicy(admissionv1.Ignore).
		WithMatchPolicy(admissionv1.Equivalent).
		WithSideEffects(admissionv1.SideEffectClassNone).
		WithTimeoutSeconds(int32(Timeout.Seconds())).
		WithAdmissionReviewVersions("v1"), r.guardWebhook(bundle))
}

// guardWebhook is called for what nobody but a writer may do, and so fails closed: while
// nobody answers, just that is refused, and no other update of a pod waits.
func (r Registration) guardWebhook(bundle []byte) *acadmission.ValidatingWebhookApplyConfiguration {
	return acadmission.ValidatingWebhook().
		WithName(guardName).
		WithClientConfig(r.Target.clientConfig(admission.GuardPath, bundle)).
		WithRules(podRule(admissionv1.Update)).
		WithNamespaceSelector(r.namespaceSelector()).
		WithMatchConditions(guardConditions(r.Writers)...).
		WithFailurePolicy(admissionv1.Fail).
		WithMatchPolicy(admissionv1.Equivalent).
		WithSideEffects(admissionv1.SideEffectClassNone).
		WithTimeoutSeconds(int32(Timeout.Seconds())).
		WithAdmissionReviewVersions("v1")
}

func podRule(operation admissionv1.OperationType) *acadmission.RuleWithOperationsApplyConfiguration {
	return acadmission.RuleWithOperations().
		WithOperations(operation).
		WithAPIGroups("").WithAPIVersions("v1").WithResources("pods").WithScope(admissionv1.NamespacedScope)
}

func (r Registration) namespaceSelector() *acmeta.LabelSelectorApplyConfiguration {
	excluded := append(SystemNamespaces(), r.Excluded...)
	slices.Sort(excluded)
	return acmeta.LabelSelector().WithMatchExpressions(acmeta.LabelSelectorRequirement().
		WithKey(corev1.LabelMetadataName).
		WithOperator(metav1.LabelSelectorOpNotIn).
		WithValues(slices.Compact(excluded)...))
}
