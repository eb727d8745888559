// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
)

// PagePath is below which the page is served by its pods, and what the API server is asked whether
// a user may get it.
const PagePath = "/deviceshare/page"

// pageLabels are those of the page's pods, pagePort is the name of their port.
const pageLabels, pagePort = "app.kubernetes.io/name=deviceshare-view", "page"

// PageProxy leads to the page of an installation: a handler that passes requests on to one of the
// page's pods, through the API server, with the token of Account. Safe for concurrent use.
type PageProxy struct {
	mu     sync.Mutex // guards reader
	reader *Reader
	proxy  *httputil.ReverseProxy
}

// NewPageProxy returns the door of the installation that the reader reads. From then on the reader
// is the door's.
func NewPageProxy(r *Reader) *PageProxy {
	d := &PageProxy{reader: r}
	transport := &http.Transport{
		DialTLSContext:      func(ctx context.Context, _, _ string) (net.Conn, error) { return d.dialPage(ctx) },
		MaxIdleConnsPerHost: 4, IdleConnTimeout: 20 * time.Second,
	}
	d.proxy = &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(p *httputil.ProxyRequest) { d.rewriteRequest(p) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	return d
}

// Check tries to reach the page, so that somebody who lacks a right, or whose installation has no
// page, is told so at once.
func (d *PageProxy) Check(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://page"+PagePath+"/icon.svg", http.NoBody)
	if err != nil {
		return err
	}
	if err := d.addToken(ctx, request.Header); err != nil {
		return err
	}
	answer, err := d.proxy.Transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the page answers %s", answer.Status)
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (d *PageProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.proxy.ServeHTTP(w, r) }

// rewriteRequest sends nothing of the browser's on but what is asked for.
func (d *PageProxy) rewriteRequest(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "https", "page", "page"
	p.Out.URL.Path, p.Out.URL.RawPath = PagePath+p.In.URL.Path, ""
	p.Out.Header = http.Header{}
	_ = d.addToken(p.In.Context(), p.Out.Header) // without a token the page refuses, and says why
}

func (d *PageProxy) addToken(ctx context.Context, h http.Header) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.reader.renewToken(ctx); err != nil {
		return err
	}
	h.Set("Authorization", "Bearer "+d.reader.token)
	return nil
}

// dialPage opens a connection to a pod of the page, in a tunnel of its own: when the pod is
// replaced, the next connection finds the new one.
func (d *PageProxy) dialPage(ctx context.Context) (net.Conn, error) {
	p, port, err := d.findReadyPod(ctx)
	if err != nil {
		return nil, err
	}
	tunnel, err := d.reader.openTunnel(p)
	if err != nil {
		return nil, fmt.Errorf("reach pod %s through the API server: %w", p.Name, err)
	}
	s, err := openStream(tunnel, port)
	if err != nil {
		_ = tunnel.Close()
		return nil, fmt.Errorf("reach port %d of pod %s: %w", port, p.Name, err)
	}
	conn := tls.Client(&passage{stream: s, tunnel: tunnel}, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("speak to pod %s: %w", p.Name, err)
	}
	return conn, nil
}

func (d *PageProxy) findReadyPod(ctx context.Context) (*corev1.Pod, int32, error) {
	pods, err := d.reader.client.CoreV1().Pods(d.reader.namespace).List(ctx, metav1.ListOptions{LabelSelector: pageLabels})
	if err != nil {
		return nil, 0, fmt.Errorf("list the pods of the page in namespace %s: %w", d.reader.namespace, err)
	}
	if len(pods.Items) == 0 {
		return nil, 0, fmt.Errorf("no page runs in namespace %s: install the chart with view.page.enabled=true, "+
			"name the namespace (--install-namespace), or serve it from here (--local)", d.reader.namespace)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if !isReady(p) {
			continue
		}
		for k := range p.Spec.Containers {
			ports := p.Spec.Containers[k].Ports
			if at := slices.IndexFunc(ports, func(c corev1.ContainerPort) bool { return c.Name == pagePort }); at >= 0 {
				return p, ports[at].ContainerPort, nil
			}
		}
	}
	return nil, 0, fmt.Errorf("no pod of the page in namespace %s is ready", d.reader.namespace)
}

func isReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// passage is a stream with its tunnel, which ends with it.
type passage struct {
	*stream
	tunnel httpstream.Connection
}

func (p *passage) Close() error {
	_ = p.stream.Close()
	return p.tunnel.Close()
}
