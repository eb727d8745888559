// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"deviceshare/config"
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
	refusals    chan struct{}
	edits       chan struct{} // each is a change of the MutatingWebhookConfiguration by somebody else
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	resources := func(group string, list ...metav1.APIResource) {
		answer(w, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group, APIResources: list})
	}
	const registrations = "/apis/admissionregistration.k8s.io/v1"
	switch path := r.URL.Path; {
	case path == "/api":
		answer(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case path == "/apis":
		v := metav1.GroupVersionForDiscovery{GroupVersion: "admissionregistration.k8s.io/v1", Version: "v1"}
		answer(w, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups: []metav1.APIGroup{{Name: "admissionregistration.k8s.io", Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}}})
	case path == "/api/v1":
		resources("v1", metav1.APIResource{Name: "secrets", Namespaced: true, Kind: "Secret"})
	case path == registrations:
		resources("admissionregistration.k8s.io/v1",
			metav1.APIResource{Name: "mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration"},
			metav1.APIResource{Name: "validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration"})
	case r.URL.Query().Get("watch") != "":
		a.watch(w, r)
	case path == registrations+"/mutatingwebhookconfigurations", path == registrations+"/validatingwebhookconfigurations":
		_, _ = io.WriteString(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	case r.Method == http.MethodGet && strings.HasPrefix(path, registrations+"/") && a.isInstalled:
		_, _ = io.WriteString(w, `{"metadata":{"name":"deviceshare"}}`)
	case strings.HasSuffix(path, "/kube-system/configmaps") && a.config != "" && strings.Contains(r.URL.RawQuery, "device-config"):
		answer(w, corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: config.DeviceName, ResourceVersion: "1"},
				Data: map[string]string{config.DeviceKey: a.config}}}})
	case strings.HasSuffix(path, "/configmaps"):
		_, _ = io.WriteString(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	default:
		a.write(w, r)
	}
}

// watch answers a watch with one event for each edit.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).Flush()
	edits := a.edits
	if !strings.Contains(r.URL.Path, "/mutatingwebhookconfigurations") {
		edits = nil
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-edits:
			_, _ = io.WriteString(w, `{"type":"MODIFIED","object":{"kind":"MutatingWebhookConfiguration",`+
				`"apiVersion":"admissionregistration.k8s.io/v1","metadata":{"name":"deviceshare","resourceVersion":"2"}}}`+"\n")
			_ = http.NewResponseController(w).Flush()
		}
	}
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
	go func() { done <- s.start(ctx) }()
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
	if s.keeper.Ready(nil) == nil {
		t.Error("ready though the registration was refused")
	}
	fake.mu.Lock()
	fake.let = true
	fake.mu.Unlock()
	s.keeper.Poke()
	if err := eventually(t.Context(), func() bool { return open(address) }); err != nil {
		t.Error(err)
	}
	if err := s.keeper.Ready(nil); err != nil {
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

func TestAWebhookInTheClusterFillsTheChartsObjectsAgainWhenTheyAreReplaced(t *testing.T) {
	fake := &apiServer{let: true, isInstalled: true, refusals: make(chan struct{}, 1), edits: make(chan struct{})}
	_, address, end := startWebhook(t, fake, "--service-name=webhook", "--namespace=ns")
	if err := eventually(t.Context(), func() bool { return open(address) }); err != nil {
		t.Fatal(err)
	}
	filled := func() int {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		return fake.bundles
	}
	before := filled()
	fake.edits <- struct{}{}
	// Well before the keeper looks again of itself.
	if err := eventually(t.Context(), func() bool { return filled() >= before+2 }); err != nil {
		t.Errorf("%v: %d bundles written before the edit, %d after it", err, before, filled())
	}
	if err := end(); err != nil {
		t.Errorf("start: %v", err)
	}
	for _, write := range fake.wrote {
		if strings.Contains(write, "webhookconfigurations") && !strings.HasPrefix(write, http.MethodPatch) {
			t.Errorf("%s: the chart creates and deletes them", write)
		}
	}
}

func TestAWebhookInTheClusterDoesNotServeWithoutTheChartsObjects(t *testing.T) {
	fake := &apiServer{let: true, refusals: make(chan struct{}, 1)}
	s, address, end := startWebhook(t, fake, "--service-name=webhook", "--namespace=ns")
	if err := s.config.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := s.Publish(t.Context(), []byte("CA"))
	if err == nil || !strings.Contains(err.Error(), `create it with the chart`) {
		t.Errorf("got %v", err)
	}
	if open(address) {
		t.Error("the port is open")
	}
	if err := end(); err != nil {
		t.Errorf("start: %v", err)
	}
	if fake.bundles > 0 {
		t.Errorf("wrote %q", fake.wrote)
	}
}

func TestAWebhookThatCannotReadItsConfigurationIsLikeOneThatIsDown(t *testing.T) {
	fake := &apiServer{let: true, config: "nvidia: {resourceCountName: x/gpu, gpuMemoryFactor: many}", refusals: make(chan struct{}, 1)}
	s, address, end := startWebhook(t, fake)
	if err := eventually(t.Context(), func() bool {
		err := s.ready(nil)
		return err != nil && strings.Contains(err.Error(), "device configuration cannot be read")
	}); err != nil {
		t.Errorf("%v: readiness says %v", err, s.ready(nil))
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
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
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
