// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"deviceshare/endpoint"
	"deviceshare/endpoint/endpointtest"
	"deviceshare/view/capture"
	"deviceshare/view/forward"
	"deviceshare/view/page"
)

func TestThePageIsForItsReadersAndHealthForEverybody(t *testing.T) {
	users := endpointtest.NewUsers()
	users.Issue("reader", "reader")
	users.Allow("reader", forward.PagePath, true)
	users.Issue("stranger", "stranger")
	users.Allow("stranger", "/metrics", true)
	h := &handler{}
	server := httptest.NewServer(h.newMux(endpoint.NewAccess(users.Client(t))))
	defer server.Close()
	ask := func(path, token string) (int, string) {
		request, err := http.NewRequest(http.MethodGet, server.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		// The stream of events does not end by itself.
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 30))
		return answer.StatusCode, string(text)
	}
	expect := func(when, path, token string, code int, says string) {
		t.Helper()
		if got, text := ask(path, token); got != code || !strings.Contains(text, says) {
			t.Errorf("%s: %s with token %q: %d %q, want %d with %q", when, path, token, got, text, code, says)
		}
	}
	const p = forward.PagePath
	expect("before the cluster was read", p+"/", "reader", 503, "being read")
	expect("before the cluster was read", p+"/", "", 401, "")
	expect("before the cluster was read", "/readyz", "", 503, "being read")
	expect("before the cluster was read", "/healthz", "", 200, "ok")
	h.page.Store(page.New(page.Captured{Of: &capture.State{}}))
	for path, says := range map[string]string{"/": "<!doctype html>", "/main.js": "SPDX", "/data/overview": `{"version":1`, page.EventsPath: "event: change"} {
		expect("afterwards", p+path, "reader", 200, says)
		expect("afterwards", p+path, "", 401, "")
		expect("afterwards", p+path, "nobody", 401, "")
		expect("afterwards", p+path, "stranger", 403, "may not get")
	}
	expect("afterwards", "/readyz", "", 200, "ok")
	for _, path := range []string{"/", "/main.js", "/metrics"} {
		expect("afterwards", path, "reader", 404, "")
	}
}

func TestMistakesOfTheCommandLineAreToldAtOnce(t *testing.T) {
	c := rootCommand()
	c.SetArgs([]string{"--address=8443", "--config-namespace="})
	err := c.Execute()
	for _, want := range []string{"--address", "--config-namespace"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error %v does not name %s", err, want)
		}
	}
}
