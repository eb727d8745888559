// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"deviceshare/view/usage"
)

// Account is the service account whose token reads the metrics, and Role the Role that lets a user
// ask for that token and reach the pods. Both are in the chart.
const Account, Role = "deviceshare-top", "deviceshare-top"

// pluginLabels are those of the device plugin's pods, metricsPort is the name of their port.
const pluginLabels, metricsPort = "app.kubernetes.io/name=deviceshare-device-plugin", "metrics"

const (
	// tokenLife is the shortest that the API server gives out, in seconds; a token is renewed when
	// half of it is over.
	tokenLife = 600
	// atOnce bounds how many nodes are asked at once, patience how long one may take.
	atOnce, patience = 16, 10 * time.Second
)

// Sample is what one node said, and when.
type Sample struct {
	Page *usage.Page
	At   time.Time
	// Err is why there is no page.
	Err error
}

// Reader reads the device plugins of one installation. It is for one caller at a time.
type Reader struct {
	config    *rest.Config
	client    kubernetes.Interface
	namespace string

	token string
	until time.Time
}

// New returns a reader of the installation in a namespace.
func New(config *rest.Config, client kubernetes.Interface, namespace string) *Reader {
	return &Reader{config: config, client: client, namespace: namespace}
}

// Read asks the device plugin of each node that is wanted, and returns what each says by the name
// of its node. A node without a device plugin is not in it.
func (r *Reader) Read(ctx context.Context, wanted func(node string) bool) (map[string]Sample, error) {
	pods, err := r.client.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{LabelSelector: pluginLabels})
	if err != nil {
		return nil, fmt.Errorf("list the device plugins in namespace %s: %w", r.namespace, err)
	}
	if len(pods.Items) == 0 {
		return nil, fmt.Errorf("no device plugin runs in namespace %s: is it installed in another? (--install-namespace)", r.namespace)
	}
	if err := r.renewToken(ctx); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	samples := map[string]Sample{}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Spec.NodeName == "" || !wanted(p.Spec.NodeName) {
			continue
		}
		group.Go(func() error {
			s := r.samplePlugin(ctx, p)
			mu.Lock()
			defer mu.Unlock()
			// While a pod is replaced there are two: the one that answers counts.
			if before, there := samples[p.Spec.NodeName]; !there || before.Err != nil {
				samples[p.Spec.NodeName] = s
			}
			return nil
		})
	}
	return samples, group.Wait()
}

func (r *Reader) samplePlugin(ctx context.Context, p *corev1.Pod) Sample {
	if p.Status.Phase != corev1.PodRunning {
		return Sample{Err: fmt.Errorf("its device plugin %s is %s", p.Name, strings.ToLower(string(p.Status.Phase)))}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := Sample{At: time.Now()}
	s.Page, s.Err = r.fetchMetrics(ctx, p)
	return s
}

// renewToken gets a token if there is none that holds for a while.
func (r *Reader) renewToken(ctx context.Context) error {
	asked := time.Now()
	if asked.Before(r.until) {
		return nil
	}
	life := int64(tokenLife)
	token, err := r.client.CoreV1().ServiceAccounts(r.namespace).CreateToken(ctx, Account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &life}}, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you need Role %s of namespace %s, which lets you read the metrics: %w", Role, r.namespace, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("namespace %s has no service account %s: it is of the chart of this version; is the installation older, or in another namespace? (--install-namespace): %w",
			r.namespace, Account, err)
	case err != nil:
		return fmt.Errorf("get a token of service account %s/%s: %w", r.namespace, Account, err)
	}
	r.token = token.Status.Token
	r.until = asked.Add(token.Status.ExpirationTimestamp.Sub(asked) / 2)
	return nil
}

// portOf is the port under which a device plugin serves its metrics.
func portOf(p *corev1.Pod) (int32, error) {
	for i := range p.Spec.Containers {
		for _, port := range p.Spec.Containers[i].Ports {
			if port.Name == metricsPort {
				return port.ContainerPort, nil
			}
		}
	}
	return 0, fmt.Errorf("its device plugin %s has no port %q", p.Name, metricsPort)
}
