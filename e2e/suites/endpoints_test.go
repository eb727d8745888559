// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/workload"
)

// Metrics and the scheduler's ledger name pods of all tenants: they are for who has the chart's
// role. Health is for everybody and names nobody.
func testEndpoints(t *testing.T, w *world) {
	ctx, u := w.user(t, "endpoints", 2*time.Minute)
	tenant := pod("secret-training").App("main", workload.Ask{Number: 1, Memory: 100}, "forever").Build()
	if err := u.Create(ctx, tenant); err != nil {
		t.Fatal(err)
	}
	running, err := u.WaitRunning(ctx, tenant.Name)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := w.cluster.ReaderToken(ctx)
	if err != nil {
		t.Fatal(err)
	}
	editor := w.editorToken(ctx, t, u.Namespace())
	pages := []struct{ component, path, shows string }{
		{sandbox.Scheduler, "/deviceshare/ledger", string(running.UID)},
		{sandbox.Scheduler, "/metrics", "deviceshare_device_memory_allocated_bytes"},
		{sandbox.DevicePlugin, "/metrics", fmt.Sprintf(`namespace="%s",node="%s",pod="%s"`, u.Namespace(), sandbox.NodeName, tenant.Name)},
		{sandbox.Webhook, "/metrics", "deviceshare_admission_reviews_total"},
	}
	for _, page := range pages {
		address, err := w.cluster.PagesOf(ctx, page.component)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			who, token string
			code       int
			says       string
		}{
			{"nobody", "", http.StatusUnauthorized, "kubectl create token"},
			{"garbage", "garbage", http.StatusUnauthorized, "does not accept this bearer token"},
			{"a token that was tampered with", reader + "x", http.StatusUnauthorized, "does not accept this bearer token"},
			{"a user with the role edit", editor, http.StatusForbidden, "bind ClusterRole " + sandbox.ReaderRole},
			{"a reader", reader, http.StatusOK, page.shows},
		} {
			code, text, err := sandbox.GetPage(ctx, address+page.path, c.token)
			if err != nil || code != c.code || !strings.Contains(string(text), c.says) {
				t.Errorf("%s of %s for %s: %d (%v), want %d with %q; the answer is\n%.400s", page.path, page.component, c.who, code, err, c.code, c.says, text)
			}
			if code != http.StatusOK && strings.Contains(string(text), tenant.Name) {
				t.Errorf("%s of %s for %s names a pod: %s", page.path, page.component, c.who, text)
			}
		}
		plain := "http" + strings.TrimPrefix(address, "https")
		if code, text, err := sandbox.GetPage(ctx, plain+page.path, reader); err == nil && code == http.StatusOK {
			t.Errorf("%s of %s is served without TLS: %.100s", page.path, page.component, text)
		}
	}
	w.healthIsOpen(ctx, t, tenant.Name)
}

// healthIsOpen asks what the kubelet asks, without a token.
func (w *world) healthIsOpen(ctx context.Context, t *testing.T, tenant string) {
	t.Helper()
	for component, at := range map[string]struct {
		scheme string
		port   int
		paths  []string
	}{
		sandbox.Scheduler:    {"http", 11251, []string{"/healthz"}},
		sandbox.DevicePlugin: {"https", 9394, []string{"/healthz"}},
		sandbox.Webhook:      {"http", 8081, []string{"/healthz", "/readyz"}},
	} {
		address, err := w.cluster.PagesOf(ctx, component)
		if err != nil {
			t.Fatal(err)
		}
		host := strings.TrimPrefix(address, "https://")
		host = host[:strings.LastIndex(host, ":")]
		for _, path := range at.paths {
			code, text, err := sandbox.GetPage(ctx, fmt.Sprintf("%s://%s:%d%s", at.scheme, host, at.port, path), "")
			if err != nil || code != http.StatusOK || strings.Contains(string(text), tenant) {
				t.Errorf("%s of %s: %d (%v) %q", path, component, code, err, text)
			}
		}
		for _, path := range []string{"/metrics", "/deviceshare/ledger", "/debug/pprof/", "/debug/flags/v"} {
			code, text, err := sandbox.GetPage(ctx, fmt.Sprintf("%s://%s:%d%s", at.scheme, host, at.port, path), "")
			if err != nil || code == http.StatusOK {
				t.Errorf("%s of %s at the address of its health: %d (%v) %.100q", path, component, code, err, text)
			}
		}
	}
}
