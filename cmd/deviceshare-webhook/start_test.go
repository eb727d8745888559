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
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"deviceshare/config"
	"deviceshare/plugins/admission/certificate"
)

// apiServer answers what the webhook asks at its start, and refuses to take the
// registration until it is let.
type apiServer struct {
	mu  sync.Mutex
	let bool
	// isInstalled says that the chart has created the webhook configurations.
	isInstalled bool
	config      string   // the text of the device ConfigMap, "" for none
	wrote       []string // method and path of every write
	bundles     int
	secrets     map[string]*corev1.Secret
	refusals    chan struct{}
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	resources := func(group string, list ...metav1.APIResource) {
		answer(w, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group, APIResources: list})
	}
	const registrations = "/apis/admissionregistration.k8s.io/v1"
	switch at := r.URL.Path; {
	case at == "/api":
		answer(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case at == "/apis":
		v := metav1.GroupVersionForDiscovery{GroupVersion: "admissionregistration.k8s.io/v1", Version: "v1"}
		answer(w, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups: []metav1.APIGroup{{Name: "admissionregistration.k8s.io", Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}}})
	case at == "/api/v1":
		resources("v1", metav1.APIResource{Name: "secrets", Namespaced: true, Kind: "Secret"})
	case at == registrations:
		resources("admissionregistration.k8s.io/v1",
			metav1.APIResource{Name: "mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration"},
			metav1.APIResource{Name: "validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration"})
	case r.URL.Query().Get("watch") != "":
		a.watch(w, r)
	case at == registrations+"/mutatingwebhookconfigurations", at == registrations+"/validatingwebhookconfigurations":
		_, _ = io.WriteString(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	case r.Method == http.MethodGet && strings.HasPrefix(at, registrations+"/") && a.isInstalled:
		_, _ = io.WriteString(w, `{"metadata":{"name":"deviceshare"}}`)
	case strings.Contains(at, "/secrets"):
		a.secret(w, r)
	case strings.HasSuffix(at, "/kube-system/configmaps") && a.config != "" && strings.Contains(r.URL.RawQuery, "device-config"):
		answer(w, corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: config.DeviceName, ResourceVersion: "1"},
				Data: map[string]string{config.DeviceKey: a.config}}}})
	case strings.HasSuffix(at, "/configmaps"):
		_, _ = io.WriteString(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	default:
		a.write(w, r)
	}
}

// watch answers a watch in which nothing happens.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// secret keeps Secrets, each write under a new resource version.
func (a *apiServer) secret(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Method == http.MethodGet {
		if kept, there := a.secrets[path.Base(r.URL.Path)]; there {
			answer(w, kept)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	}
	o, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	s, is := o.(*corev1.Secret)
	if err != nil || !is {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a.wrote = append(a.wrote, r.Method+" "+r.URL.Path)
	s.TypeMeta = metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"}
	s.ResourceVersion = strconv.Itoa(len(a.wrote))
	if a.secrets == nil {
		a.secrets = map[string]*corev1.Secret{}
	}
	a.secrets[s.Name] = s
	answer(w, s)
}

func (a *apiServer) write(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if strings.Contains(r.URL.Path, "webhookconfigurations") && !a.let {
		w.WriteHeader(http.StatusServiceUnavailable)
		select {
		case a.refusals <- struct{}{}:
		default:
		}
		return
	}
	a.wrote = append(a.wrote, r.Method+" "+r.URL.Path)
	if strings.Contains(string(body), "caBundle") {
		a.bundles++
	}
	if r.Method == http.MethodPost { // echoed in the encoding it came in
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	}
	_, _ = w.Write(body)
}

func answer(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

// startWebhook starts a webhook against the API server and returns where it is to
// serve, and how to end it.
// With flags it has a Service, without it registers itself.
func startWebhook(t *testing.T, fake *apiServer, flags ...string) (s *server, address string, end func() error) {
	t.Helper()
	api := httptest.NewServer(fake)
	t.Cleanup(api.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if len(flags) == 0 {
		flags = []string{"--url=" + address}
	}
	o, err := parse(append(flags, "--bind-address=127.0.0.1", "--port="+address[strings.LastIndex(address, ":")+1:])...)
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

func TestThePortOpensWhenTheAPIServerKnowsTheWebhook(t *testing.T) {
	fake := &apiServer{refusals: make(chan struct{}, 1)}
	s, address, end := startWebhook(t, fake)
	<-fake.refusals
	if open(address) {
		t.Error("the port is open though the registration was refused")
	}
	if s.certificates.Ready(nil) == nil {
		t.Error("ready though the registration was refused")
	}
	fake.mu.Lock()
	fake.let = true
	fake.mu.Unlock()
	if err := eventually(t.Context(), func() bool { return open(address) }); err != nil {
		t.Error(err)
	}
	if err := s.certificates.Ready(nil); err != nil {
		t.Errorf("not ready: %v", err)
	}
	if err := end(); err != nil {
		t.Errorf("start: %v", err)
	}
	fake.mu.Lock()
	defer fake.mu.Unlock()
	if fake.bundles < 2 || !strings.HasSuffix(fake.wrote[0], "/secrets") {
		t.Errorf("wrote %q with %d bundles; want the Secret first, then both configurations", fake.wrote, fake.bundles)
	}
}

// A webhook in the cluster serves what is mounted, and writes nothing at the API server.
func TestAWebhookInTheClusterServesWhatIsMountedAndWritesNothing(t *testing.T) {
	dir := t.TempDir()
	first := mount(t, dir)
	fake := &apiServer{let: true, isInstalled: true, refusals: make(chan struct{}, 1)}
	_, address, end := startWebhook(t, fake, "--certificate-dir="+dir)
	if err := eventually(t.Context(), func() bool { return served(address) == first }); err != nil {
		t.Fatal(err)
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
	s, _, err := certificate.Renew(certificate.State{}, time.Now(), []string{"webhook.ns.svc"}, certificate.DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	data, err := certificate.EncodeServing(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{certificate.ServingKeyKey, certificate.ServingCertKey} {
		if err := os.WriteFile(filepath.Join(dir, key), data[key], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s.Serving.Certificate.SerialNumber.Text(16)
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
	fake := &apiServer{let: true, config: "nvidia: {resourceCountName: x/gpu, gpuMemoryFactor: many}", refusals: make(chan struct{}, 1)}
	s, address, end := startWebhook(t, fake)
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
	fake.mu.Lock()
	defer fake.mu.Unlock()
	if fake.bundles > 0 {
		t.Errorf("registered under the default names: %q", fake.wrote)
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
