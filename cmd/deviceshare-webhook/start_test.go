// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"deviceshare/config"
	"deviceshare/endpoint/endpointtest"
	"deviceshare/plugins/admission/certificate"
)

// apiServer answers what the webhook asks at its start.
type apiServer struct {
	config string // the text of the device ConfigMap, "" for none
	mu     sync.Mutex
	wrote  []string // method and path of every write
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch at := r.URL.Path; {
	case r.Method != http.MethodGet:
		a.mu.Lock()
		defer a.mu.Unlock()
		a.wrote = append(a.wrote, r.Method+" "+at)
		w.WriteHeader(http.StatusForbidden)
	case r.URL.Query().Get("watch") != "": // in which nothing happens
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case strings.HasSuffix(at, "/kube-system/configmaps") && a.config != "" && strings.Contains(r.URL.RawQuery, "device-config"):
		answer(w, corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: config.DeviceName, ResourceVersion: "1"},
				Data: map[string]string{config.DeviceKey: a.config}}}})
	default:
		_, _ = io.WriteString(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}
}

func answer(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

// startWebhook starts a webhook with a certificate against the API server, and returns where it is
// to serve, and how to end it.
func startWebhook(t *testing.T, fake *apiServer, dir string) (s *server, address string, end func() error) {
	t.Helper()
	api := httptest.NewServer(fake)
	t.Cleanup(api.Close)
	address = endpointtest.FreeAddress(t)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	o, err := parse("--certificate-dir="+dir, "--bind-address="+host, "--port="+port)
	if err != nil {
		t.Fatal(err)
	}
	s, err = newServer(&rest.Config{Host: api.URL}, o, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.runParts(ctx) }()
	return s, address, func() error {
		cancel()
		return <-done
	}
}

func TestTheWebhookServesWhatIsMountedAndWritesNothing(t *testing.T) {
	dir := t.TempDir()
	first := mount(t, dir)
	fake := &apiServer{}
	s, address, end := startWebhook(t, fake, dir)
	if err := eventually(t.Context(), func() bool { return served(address) == first }); err != nil {
		t.Fatal(err)
	}
	if err := s.checkReadiness(nil); err != nil {
		t.Errorf("not ready: %v", err)
	}
	second := mount(t, dir)
	if err := eventually(t.Context(), func() bool { return served(address) == second }); err != nil {
		t.Errorf("a renewed certificate is not served: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, certificate.ServingCertKey), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if got := served(address); got != second {
			t.Errorf("while its file is being written it serves %q", got)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := end(); err != nil {
		t.Errorf("start: %v", err)
	}
	if len(fake.wrote) > 0 {
		t.Errorf("wrote %q", fake.wrote)
	}
}

func TestAWebhookDoesNotStartWithoutItsCertificate(t *testing.T) {
	o, err := parse("--certificate-dir=" + t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newServer(&rest.Config{Host: "http://127.0.0.1:1"}, o, prometheus.NewRegistry()); err == nil || !strings.Contains(err.Error(), "read the serving certificate in") {
		t.Errorf("got %v", err)
	}
}

// mount writes a new serving certificate as the kubelet would, and returns its serial number.
func mount(t *testing.T, dir string) string {
	t.Helper()
	crt, key, err := cert.GenerateSelfSignedCertKey("webhook.ns.svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{certificate.ServingKeyKey: key, certificate.ServingCertKey: crt} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := cert.ParseCertsPEM(crt)
	if err != nil {
		t.Fatal(err)
	}
	return list[0].SerialNumber.Text(16)
}

// served is the serial number of the certificate at an address, empty if nobody answers.
func served(address string) string {
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return ""
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Text(16)
}

func TestAWebhookThatCannotReadItsConfigurationIsLikeOneThatIsDown(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir)
	s, address, end := startWebhook(t, &apiServer{config: "nvidia: {resourceCountName: x/gpu, gpuMemoryFactor: many}"}, dir)
	if err := eventually(t.Context(), func() bool {
		err := s.checkReadiness(nil)
		return err != nil && strings.Contains(err.Error(), "device configuration cannot be read")
	}); err != nil {
		t.Errorf("%v: readiness says %v", err, s.checkReadiness(nil))
	}
	if open(address) {
		t.Error("the port is open")
	}
	if err := end(); err != nil {
		t.Errorf("start: %v", err)
	}
}

func open(address string) bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

func eventually(ctx context.Context, what func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !what() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("it did not come to be: %w", ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}
