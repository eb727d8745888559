// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

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
	return nil
}

// registerWebhook creates the webhook configurations of the manifests for a webhook that is a
// process of its own: it is called by its address, and the sandbox's authority signs for it.
func (c *Cluster) registerWebhook(ctx context.Context) error {
	ca, err := os.ReadFile(c.layout.cert("ca"))
	if err != nil {
		return fmt.Errorf("register the webhook: %w", err)
	}
	group := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	kinds := map[string]schema.GroupVersionResource{
		"MutatingWebhookConfiguration":   group.WithResource("mutatingwebhookconfigurations"),
		"ValidatingWebhookConfiguration": group.WithResource("validatingwebhookconfigurations"),
	}
	all, err := objects(filepath.Join(c.layout.repo, "manifests", "install", "deviceshare.yaml"), kinds)
	if err != nil {
		return err
	}
	for _, o := range all {
		if err := callByAddress(o, fmt.Sprintf("127.0.0.1:%d", c.ports.Webhook), ca); err != nil {
			return fmt.Errorf("register the webhook: %w", err)
		}
		// Whatever is there has the port and the authority of an earlier start.
		if _, err := c.dynamic.Resource(kinds[o.GetKind()]).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "sandbox", Force: true}); err != nil {
			return fmt.Errorf("register the webhook: apply %s: %w", o.GetKind(), err)
		}
	}
	return nil
}

// callByAddress replaces the Service in a webhook configuration.
func callByAddress(configuration *unstructured.Unstructured, address string, ca []byte) error {
	hooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return fmt.Errorf("read %s: %w", configuration.GetKind(), err)
	}
	for _, h := range hooks {
		hook := h.(map[string]any)
		path, ok, err := unstructured.NestedString(hook, "clientConfig", "service", "path")
		if err != nil || !ok {
			return fmt.Errorf("%s: webhook %v has no path of a Service", configuration.GetKind(), hook["name"])
		}
		hook["clientConfig"] = map[string]any{"url": "https://" + address + path, "caBundle": base64.StdEncoding.EncodeToString(ca)}
	}
	return unstructured.SetNestedSlice(configuration.Object, hooks, "webhooks")
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
