// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/workload"
)

// Whoever gets the token of a node's device plugin can do no more than that plugin: write about its
// node, and give its pods back. Every request here is a dry run.
func testPluginToken(t *testing.T, w *world) {
	ctx, u := w.user(t, "tokens", 2*time.Minute)
	victim := w.otherNodesPod(ctx, t, u.Namespace())
	own := pod("own").App("main", workload.Ask{Number: 1, Memory: 100}, "forever").Build()
	if err := u.Create(ctx, own); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitRunning(ctx, own.Name); err != nil {
		t.Fatal(err)
	}
	client := w.as(ctx, t, sandbox.DevicePlugin)
	other := w.otherNode(ctx, t)

	thief := thief{ctx: ctx, client: client, namespace: u.Namespace()}
	for what, err := range map[string]error{
		"publish its own inventory": thief.node(sandbox.NodeName, `{"metadata":{"annotations":{"volcano.sh/node-vgpu-inventory":"{}"}}}`),
		"publish its own amounts":   thief.node(sandbox.NodeName, `{"status":{"capacity":{"volcano.sh/vgpu-memory":"1"}}}`, "status"),
		"read pods":                 thief.read(),
	} {
		if err != nil {
			t.Errorf("the device plugin may not %s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"publish another node's inventory":          thief.node(other, `{"metadata":{"annotations":{"volcano.sh/node-vgpu-inventory":"{}"}}}`),
		"publish another node's amounts":            thief.node(other, `{"status":{"capacity":{"volcano.sh/vgpu-memory":"1"}}}`, "status"),
		"take another node's memory":                thief.node(other, `{"status":{"capacity":{"memory":"1"}}}`, "status"),
		"taint its node":                            thief.node(sandbox.NodeName, `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`),
		"cordon its node":                           thief.node(sandbox.NodeName, `{"spec":{"unschedulable":true}}`),
		"label its node":                            thief.node(sandbox.NodeName, `{"metadata":{"labels":{"secure":"yes"}}}`),
		"remove a label of its node":                thief.node(sandbox.NodeName, `{"metadata":{"labels":{"kubernetes.io/hostname":null}}}`),
		"annotate its node for others":              thief.node(sandbox.NodeName, `{"metadata":{"annotations":{"node.alpha.kubernetes.io/ttl":"9"}}}`),
		"keep its node by a finalizer":              thief.node(sandbox.NodeName, `{"metadata":{"finalizers":["a.example/b"]}}`),
		"invent CPUs of its node":                   thief.node(sandbox.NodeName, `{"status":{"capacity":{"cpu":"999"}}}`, "status"),
		"call its node unready":                     thief.node(sandbox.NodeName, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "status"),
		"move its node's address":                   thief.node(sandbox.NodeName, `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`, "status"),
		"label its node by way of the status":       thief.node(sandbox.NodeName, `{"metadata":{"labels":{"secure":"yes"}}}`, "status"),
		"cordon a device":                           thief.node(sandbox.NodeName, `{"metadata":{"annotations":{"volcano.sh/vgpu-cordon":"{}"}}}`),
		"delete a node":                             client.CoreV1().Nodes().Delete(ctx, other, dryDelete()),
		"create a node":                             thief.createNode(),
		"change the image of a pod":                 thief.pod(own.Name, `{"spec":{"containers":[{"name":"main","image":"evil"}]}}`),
		"annotate a pod":                            thief.pod(own.Name, `{"metadata":{"annotations":{"a":"b"}}}`),
		"move a pod's placement":                    thief.pod(own.Name, `{"metadata":{"annotations":{"volcano.sh/vgpu-placement":"{}"}}}`),
		"move a pod's placement through its status": thief.pod(own.Name, `{"metadata":{"annotations":{"volcano.sh/vgpu-placement":"{}"}}}`, "status"),
		"let a pod fail":                            thief.pod(own.Name, `{"status":{"phase":"Failed"}}`, "status"),
		"confirm a pod without being asked to":      thief.pod(own.Name, `{"metadata":{"annotations":{"volcano.sh/bind-phase":"success"}}}`, "status"),
		"delete a pod that nobody makes again":      client.CoreV1().Pods(u.Namespace()).Delete(ctx, own.Name, dryDelete()),
		"delete a pod of another node":              client.CoreV1().Pods(u.Namespace()).Delete(ctx, victim, dryDelete()),
		"delete all pods of a namespace":            client.CoreV1().Pods(sandbox.Namespace).DeleteCollection(ctx, dryDelete(), metav1.ListOptions{}),
		"evict a pod":                               thief.evict(victim),
		"bind a pod":                                thief.bind(victim),
		"create a pod":                              thief.createPod(),
		"run a command in a pod":                    thief.exec(own.Name),
		"add a container to a pod":                  thief.pod(own.Name, `{"spec":{"ephemeralContainers":[{"name":"a","image":"b"}]}}`, "ephemeralcontainers"),
		"read secrets":                              thief.list("secrets", sandbox.Namespace),
		"read all secrets":                          thief.list("secrets", ""),
		"read a ConfigMap of somebody":              thief.get("configmaps", u.Namespace(), "kube-root-ca.crt"),
		"list all ConfigMaps":                       thief.list("configmaps", ""),
		"edit its configuration":                    thief.patch("configmaps", "kube-system", "volcano-vgpu-device-config"),
		"get a token of the scheduler":              thief.token("deviceshare-scheduler"),
		"get a token of its own account":            thief.token("deviceshare-device-plugin"),
		"give itself a role":                        thief.createRole(),
		"register a webhook":                        thief.patch("mutatingwebhookconfigurations", "", "deviceshare"),
		"switch a policy off":                       thief.deletes("validatingadmissionpolicybindings", "deviceshare-nodes"),
		"change its DaemonSet":                      thief.patch("daemonsets", sandbox.Namespace, "deviceshare-device-plugin"),
		"impersonate an administrator":              thief.impersonate(),
	} {
		switch {
		case err == nil:
			t.Errorf("with the token of a device plugin anybody may %s", what)
		case !apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
			t.Errorf("%s: %v, want that it is forbidden", what, err)
		}
	}
}

// as is a client with a token as the kubelet gives it to a pod of a component.
func (w *world) as(ctx context.Context, t *testing.T, component string) kubernetes.Interface {
	t.Helper()
	pods, err := w.cluster.Client().CoreV1().Pods(sandbox.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=deviceshare-" + component, FieldSelector: "status.phase=Running"})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("no pod of %s runs: %v", component, err)
	}
	p := &pods.Items[0]
	token, err := w.cluster.Client().CoreV1().ServiceAccounts(sandbox.Namespace).CreateToken(ctx, p.Spec.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(w.cluster.RestConfig())
	config.BearerToken = token.Status.Token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// otherNode makes a node on which nothing runs.
func (w *world) otherNode(ctx context.Context, t *testing.T) string {
	t.Helper()
	nodes := w.cluster.Client().CoreV1().Nodes()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "somebody-elses"}}
	if _, err := nodes.Create(ctx, n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nodes.Delete(context.Background(), n.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return n.Name
}

// otherNodesPod makes a pod that is bound to a node that is not there.
func (w *world) otherNodesPod(ctx context.Context, t *testing.T, namespace string) string {
	t.Helper()
	p := pod("elsewhere").Plain("main", "true").Build()
	p.Spec.NodeName = "somebody-elses"
	if _, err := w.cluster.Client().CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return p.Name
}

// thief tries what a token is not for, without doing it.
type thief struct {
	ctx       context.Context
	client    kubernetes.Interface
	namespace string
}

func dry() []string                   { return []string{metav1.DryRunAll} }
func dryDelete() metav1.DeleteOptions { return metav1.DeleteOptions{DryRun: dry()} }
func dryCreate() metav1.CreateOptions { return metav1.CreateOptions{DryRun: dry()} }
func dryPatch() metav1.PatchOptions   { return metav1.PatchOptions{DryRun: dry()} }
func (s thief) rest() rest.Interface  { return s.client.CoreV1().RESTClient() }
func group(resource string) string {
	switch resource {
	case "daemonsets":
		return "/apis/apps/v1"
	case "mutatingwebhookconfigurations", "validatingadmissionpolicybindings":
		return "/apis/admissionregistration.k8s.io/v1"
	}
	return "/api/v1"
}

func (s thief) node(name, patch string, subresource ...string) error {
	_, err := s.client.CoreV1().Nodes().Patch(s.ctx, name, types.MergePatchType, []byte(patch), dryPatch(), subresource...)
	return err
}

func (s thief) pod(name, patch string, subresource ...string) error {
	_, err := s.client.CoreV1().Pods(s.namespace).Patch(s.ctx, name, types.MergePatchType, []byte(patch), dryPatch(), subresource...)
	return err
}

func (s thief) read() error {
	_, err := s.client.CoreV1().Pods("").List(s.ctx, metav1.ListOptions{})
	return err
}

func (s thief) createNode() error {
	_, err := s.client.CoreV1().Nodes().Create(s.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, dryCreate())
	return err
}

func (s thief) createPod() error {
	_, err := s.client.CoreV1().Pods(sandbox.Namespace).Create(s.ctx, pod("mine").Plain("main", "true").Build(), dryCreate())
	return err
}

func (s thief) evict(name string) error {
	options := dryDelete()
	return s.client.CoreV1().Pods(s.namespace).EvictV1(s.ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, DeleteOptions: &options})
}

func (s thief) bind(name string) error {
	return s.client.CoreV1().Pods(s.namespace).Bind(s.ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name},
		Target: corev1.ObjectReference{Kind: "Node", Name: sandbox.NodeName}}, dryCreate())
}

func (s thief) exec(name string) error {
	return s.rest().Post().Namespace(s.namespace).Resource("pods").Name(name).SubResource("exec").
		Param("command", "true").Param("stdout", "true").Do(s.ctx).Error()
}

func (s thief) path(resource, namespace, name string) string {
	path := group(resource)
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	path += "/" + resource
	if name != "" {
		path += "/" + name
	}
	return path
}

func (s thief) list(resource, namespace string) error {
	return s.rest().Get().AbsPath(s.path(resource, namespace, "")).Do(s.ctx).Error()
}

func (s thief) get(resource, namespace, name string) error {
	return s.rest().Get().AbsPath(s.path(resource, namespace, name)).Do(s.ctx).Error()
}

func (s thief) patch(resource, namespace, name string) error {
	return s.rest().Patch(types.MergePatchType).AbsPath(s.path(resource, namespace, name)).Param("dryRun", metav1.DryRunAll).
		Body([]byte(`{"metadata":{"labels":{"a":"b"}}}`)).Do(s.ctx).Error()
}

func (s thief) deletes(resource, name string) error {
	return s.rest().Delete().AbsPath(s.path(resource, "", name)).Param("dryRun", metav1.DryRunAll).Do(s.ctx).Error()
}

func (s thief) token(account string) error {
	_, err := s.client.CoreV1().ServiceAccounts(sandbox.Namespace).CreateToken(s.ctx, account, &authenticationv1.TokenRequest{}, dryCreate())
	return err
}

func (s thief) createRole() error {
	text := `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"mine"},` +
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}}`
	return s.rest().Post().AbsPath("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings").Param("dryRun", metav1.DryRunAll).
		Body([]byte(text)).Do(s.ctx).Error()
}

func (s thief) impersonate() error {
	return s.rest().Get().AbsPath("/api/v1/secrets").SetHeader("Impersonate-User", "admin").
		SetHeader("Impersonate-Group", "system:masters").Do(s.ctx).Error()
}
