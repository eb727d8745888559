// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestOnlyWhoKnowsTheKeySeesThePage(t *testing.T) {
	d, err := Listen(0, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "page %s", r.URL) }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx) }()
	address := d.listener.Addr().String()
	if !strings.HasPrefix(address, "127.0.0.1:") {
		t.Errorf("it listens at %s", address)
	}
	root := "http://" + address
	for name, c := range map[string]struct {
		method, url, host string
		code              int
		says              string
	}{
		"the address that was printed":     {"GET", d.URL(), "", 200, "page /"},
		"a file of the page":               {"GET", d.URL() + "data/nodes?text=a%2Fb", "", 200, "page /data/nodes?text=a%2Fb"},
		"nothing":                          {"GET", root + "/", "", 403, "holds a key"},
		"the key without a slash":          {"GET", strings.TrimSuffix(d.URL(), "/"), "", 403, "holds a key"},
		"half of the key":                  {"GET", root + "/" + d.key[:10] + "/", "", 403, "holds a key"},
		"an empty key":                     {"GET", root + "//data/nodes", "", 403, "holds a key"},
		"another site's name":              {"GET", d.URL(), "evil.example.com", 421, "its own name"},
		"another name of the same machine": {"GET", d.URL(), "localhost", 421, "its own name"},
		"a write":                          {"POST", d.URL(), "", 405, "only GET"},
		"a step out of the page":           {"GET", d.URL() + "../../", "", 404, "not found"},
	} {
		request, err := http.NewRequest(c.method, c.url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if c.host != "" {
			request.Host = c.host
		}
		answer, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != c.code || !strings.Contains(string(text), c.says) {
			t.Errorf("%s: %d %q, want %d with %q", name, answer.StatusCode, text, c.code, c.says)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestEachTimeTheKeyIsAnotherOne(t *testing.T) {
	keys := map[string]bool{}
	for range 20 {
		d, err := Listen(0, http.NotFoundHandler())
		if err != nil {
			t.Fatal(err)
		}
		keys[d.key] = true
		if len(d.key) < 26 { // 128 bits
			t.Errorf("the key %q is short", d.key)
		}
		_ = d.listener.Close()
	}
	if len(keys) != 20 {
		t.Errorf("20 times there were %d keys", len(keys))
	}
}
