// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// Namespace is where the manifests put this project's components, and so the namespace of their
// accounts.
const Namespace = "deviceshare-system"

// User is the name that a component has at the apiserver, and so in the audit log. This project's
// own components are the service accounts of the manifests and may do what the roles there say; a
// right that is missing there is missing here.
func User(component string) string {
	switch component {
	case Scheduler, DevicePlugin, Webhook:
		return "system:serviceaccount:" + Namespace + ":deviceshare-" + component
	}
	return component
}

// accountGroups are those that the apiserver gives a service account of the manifests.
func accountGroups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + Namespace}
}

// accessKinds are the kinds of the manifests that say who may do what.
func accessKinds() map[string]schema.GroupVersionResource {
	rbac := schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	core := schema.GroupVersion{Version: "v1"}
	return map[string]schema.GroupVersionResource{
		"Namespace":          core.WithResource("namespaces"),
		"ServiceAccount":     core.WithResource("serviceaccounts"),
		"ClusterRole":        rbac.WithResource("clusterroles"),
		"ClusterRoleBinding": rbac.WithResource("clusterrolebindings"),
		"Role":               rbac.WithResource("roles"),
		"RoleBinding":        rbac.WithResource("rolebindings"),
	}
}

// installAccounts creates the namespace, accounts, roles and bindings of the manifests.
func (c *Cluster) installAccounts(ctx context.Context) error {
	if c.opts.Installed {
		return nil // the chart makes them
	}
	all, err := objects(filepath.Join(c.layout.repo, "manifests", "install", "deviceshare.yaml"), accessKinds())
	if err != nil {
		return err
	}
	for _, o := range all {
		var to dynamic.ResourceInterface = c.dynamic.Resource(accessKinds()[o.GetKind()])
		if o.GetNamespace() != "" {
			to = c.dynamic.Resource(accessKinds()[o.GetKind()]).Namespace(o.GetNamespace())
		}
		if _, err := to.Create(ctx, o, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s %s of the manifests: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return c.letWebhookRegister(ctx)
}

// letWebhookRegister gives the webhook the rights that it needs outside of the cluster only: there
// no chart has created its configurations and Secrets, and no Job makes its certificate.
func (c *Cluster) letWebhookRegister(ctx context.Context) error {
	const name = "sandbox-webhook"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"admissionregistration.k8s.io"}, Verbs: []string{"create", "get", "patch"},
			Resources: []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "get", "update"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: User(Webhook)}}}
	if _, err := c.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create ClusterRole %s: %w", name, err)
	}
	if _, err := c.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create ClusterRoleBinding %s: %w", name, err)
	}
	return nil
}

// objects reads what a file of manifests has of some kinds, in its order.
func objects(path string, kinds map[string]schema.GroupVersionResource) ([]*unstructured.Unstructured, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	defer f.Close()
	var out []*unstructured.Unstructured
	for in := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		o := &unstructured.Unstructured{}
		if err := in.Decode(&o.Object); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the manifests in %s: %w", path, err)
		}
		if _, wanted := kinds[o.GetKind()]; wanted {
			out = append(out, o)
		}
	}
}
