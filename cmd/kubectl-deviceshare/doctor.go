// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"deviceshare/config"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// registration is the name of the objects by which the API server calls the webhook.
const registration = "deviceshare"

func (o *options) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look for what is wrong with the installation, and say what mends it", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			if o.from != "" || o.watch {
				return errors.New("doctor asks the cluster, once: leave out --from and --watch")
			}
			s := &capture.State{
				Taken: time.Now().UTC().Truncate(time.Second), Installation: &capture.Installation{Namespace: o.installNamespace},
			}
			core, err := o.readClusterInto(c.Context(), s)
			if err != nil {
				return err
			}
			if err := o.readInstallation(c.Context(), core, s); err != nil {
				return err
			}
			return o.writeDiagnosis(s)
		},
	}
}

// writeDiagnosis writes what is wrong; that something is, is an error.
func (o *options) writeDiagnosis(s *capture.State) error {
	health := view.Read(s, factory.New()).Doctor(version)
	text, err := o.renderAnswer(answer{value: health, text: health.Text(o.terminalPaint())})
	if err != nil {
		return err
	}
	if _, err := io.WriteString(o.streams.Out, text); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if len(health.Problems) > 0 {
		return fmt.Errorf("problems found: %d", len(health.Problems))
	}
	return nil
}

// readInstallation reads what the lists do not say.
func (o *options) readInstallation(ctx context.Context, core kubernetes.Interface, s *capture.State) error {
	namespace, err := o.targetNamespace(false)
	if err != nil {
		return err
	}
	if err := readHooks(ctx, core, s); err != nil {
		return err
	}
	for _, right := range o.neededRights() {
		if right.Allowed, err = isAllowed(ctx, core, &right); err != nil {
			return err
		}
		s.Installation.Rights = append(s.Installation.Rights, right)
	}
	if namespace == o.installNamespace || strings.HasPrefix(namespace, "kube-") {
		namespace = metav1.NamespaceDefault // the webhook is not asked about pods of these
	}
	return probeWebhook(ctx, core, namespace, s)
}

// neededRights are what the commands need beside lists of nodes and pods, without which there is no
// answer at all.
func (o *options) neededRights() []capture.Right {
	const volcano, all, hooks = "scheduling.volcano.sh", "status and why", "admissionregistration.k8s.io"
	return []capture.Right{
		{For: all, Verb: "list", Group: volcano, Resource: "queues"},
		{For: all, Verb: "list", Group: volcano, Resource: "podgroups"},
		{For: all, Verb: "get", Resource: "configmaps", Name: config.DeviceName, Namespace: o.configNamespace},
		{For: "queues --namespaces", Verb: "list", Resource: "resourcequotas"},
		{For: "doctor", Verb: "get", Group: hooks, Resource: "mutatingwebhookconfigurations", Name: registration},
		{For: "doctor", Verb: "get", Group: hooks, Resource: "validatingwebhookconfigurations", Name: registration},
		{For: "top", Verb: "get", Resource: "pods/portforward", Namespace: o.installNamespace},
		{For: "top", Verb: "create", Resource: "serviceaccounts/token", Name: "deviceshare-top", Namespace: o.installNamespace},
	}
}

func isAllowed(ctx context.Context, core kubernetes.Interface, r *capture.Right) (bool, error) {
	kind, part, _ := strings.Cut(r.Resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.Verb, Group: r.Group, Resource: kind, Subresource: part, Name: r.Name, Namespace: r.Namespace,
		},
	}}
	answer, err := core.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether you may %s %s: %w", r.Verb, r.Resource, err)
	}
	return answer.Status.Allowed, nil
}

func readHooks(ctx context.Context, core kubernetes.Interface, s *capture.State) error {
	for _, read := range []struct {
		what string
		get  func() (runtime.Object, error)
	}{
		{"mutatingwebhookconfigurations", func() (runtime.Object, error) {
			return core.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, registration, metav1.GetOptions{})
		}},
		{"validatingwebhookconfigurations", func() (runtime.Object, error) {
			return core.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, registration, metav1.GetOptions{})
		}},
	} {
		object, err := read.get()
		switch {
		case apierrors.IsNotFound(err):
		case apierrors.IsForbidden(err):
			s.Forbidden = append(s.Forbidden, "get "+read.what+"/"+registration)
		case err != nil:
			return fmt.Errorf("read %s/%s: %w", read.what, registration, err)
		default:
			s.Add(object)
		}
	}
	return nil
}

// probeWebhook asks the API server to admit a pod with devices, without making it: the webhook,
// where it answers, gives such a pod its scheduler. Most webhooks are called so that pods are
// admitted while they are away, so that no answer is no error.
func probeWebhook(ctx context.Context, core kubernetes.Interface, namespace string, s *capture.State) error {
	allowed, err := isAllowed(ctx, core, &capture.Right{Verb: "create", Resource: "pods", Namespace: namespace})
	if err != nil || !allowed {
		return err
	}
	made, err := core.CoreV1().Pods(namespace).Create(ctx, probePod(s), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		s.Installation.Probe = &capture.Probe{Error: err.Error()}
		return nil
	}
	name := made.Spec.SchedulerName
	s.Installation.Probe = &capture.Probe{Completed: name != "" && name != corev1.DefaultSchedulerName}
	return nil
}

// probePod asks for one device, and for nothing that the strictest Pod Security forbids.
func probePod(s *capture.State) *corev1.Pod {
	number := corev1.ResourceName(wire.ResourceNumber)
	if s.DeviceConfig != nil {
		if d, problems := config.LoadDevice([]byte(*s.DeviceConfig)); len(problems) == 0 {
			number = corev1.ResourceName(d.Names().Number)
		}
	}
	yes, no, user := true, false, int64(65532)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "deviceshare-doctor-"},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "main", Image: "none",
				Resources:       corev1.ResourceRequirements{Limits: corev1.ResourceList{number: resource.MustParse("1")}},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
}
