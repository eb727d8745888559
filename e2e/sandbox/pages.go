// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReaderRole is the ClusterRole of the manifests whose users may read metrics and the ledger.
const ReaderRole = "deviceshare-metrics-reader"

// readerAccount is the account of the sandbox that has it. It is in namespace default, where no
// suite looks for what the product has left.
const readerAccount = "page-reader"

// reader keeps the token of that account until half of its life is over.
type reader struct {
	mu    sync.Mutex
	token string
	until time.Time
}

// ReaderToken is a token of an account that may read the product's pages.
func (c *Cluster) ReaderToken(ctx context.Context) (string, error) {
	c.reader.mu.Lock()
	defer c.reader.mu.Unlock()
	if time.Now().Before(c.reader.until) {
		return c.reader.token, nil
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: readerAccount}}
	accounts := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("create account %s: %w", readerAccount, err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: readerAccount},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ReaderRole},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: readerAccount}}}
	if _, err := c.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("bind account %s: %w", readerAccount, err)
	}
	asked := time.Now()
	token, err := accounts.CreateToken(ctx, readerAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("get a token of account %s: %w", readerAccount, err)
	}
	c.reader.token = token.Status.Token
	c.reader.until = asked.Add(token.Status.ExpirationTimestamp.Sub(asked) / 2)
	return c.reader.token, nil
}

// PagesOf is the address under which a component of the product serves its metrics, and the
// scheduler that leads its ledger.
func (c *Cluster) PagesOf(ctx context.Context, component string) (string, error) {
	ports := map[string]struct{ beside, inside int }{
		Scheduler: {c.ports.SchedulerMetrics, 8080}, DevicePlugin: {c.ports.DevicePluginMetrics, 9394}, Webhook: {c.ports.WebhookMetrics, 8080},
	}
	port, known := ports[component]
	if !known {
		return "", fmt.Errorf("component %s serves no pages", component)
	}
	if !c.opts.Installed {
		return fmt.Sprintf("https://127.0.0.1:%d", port.beside), nil
	}
	p, err := c.podOf(ctx, component)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("https://%s:%d", p.Status.PodIP, port.inside), nil
}

// podOf is a running pod of a component: of the scheduler the one that leads.
func (c *Cluster) podOf(ctx context.Context, component string) (*corev1.Pod, error) {
	if component == Scheduler {
		return c.LeadingScheduler(ctx)
	}
	pods, err := c.client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=deviceshare-" + component, FieldSelector: "status.phase=Running"})
	if err != nil {
		return nil, fmt.Errorf("find a pod of %s: %w", component, err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.DeletionTimestamp == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("find a pod of %s: none runs", component)
}

// GetPage asks for a page with a bearer token, "" for none. Certificates are not checked: each
// program makes its own.
func GetPage(ctx context.Context, url, token string) (code int, text []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("ask for %s: %w", url, err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("ask for %s: %w", url, err)
	}
	defer answer.Body.Close()
	if text, err = io.ReadAll(answer.Body); err != nil {
		return 0, nil, fmt.Errorf("read %s: %w", url, err)
	}
	return answer.StatusCode, text, nil
}
