// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"
)

// review sends an admission review over a client's connections, and reports whether the connection
// was used before, and whether the webhook closes it.
func review(t *testing.T, c *http.Client, address string) (reused, closed bool) {
	t.Helper()
	body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",` +
		`"resource":{"version":"v1","resource":"pods"},"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}}}`
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}
	q, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, "https://"+address+"/mutate", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	answer, err := c.Do(q)
	if err != nil {
		t.Fatalf("a call that the webhook has to answer: %v", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil || !strings.Contains(string(text), `"allowed":true`) {
		t.Fatalf("the answer is %s, %v", text, err)
	}
	return reused, answer.Close
}

func TestAWebhookThatLeavesAnswersAndKeepsNoConnection(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir)
	s, address, end := startWebhook(t, &apiServer{}, dir)
	t.Cleanup(func() { _ = end() })
	if err := eventually(t.Context(), func() bool { return open(address) }); err != nil {
		t.Fatal(err)
	}
	// As the API server does it: HTTP/1.1, and connections are kept.
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}}
	defer c.CloseIdleConnections()
	review(t, c, address)
	if reused, closed := review(t, c, address); !reused || closed {
		t.Errorf("a webhook that stays: connection kept %v, closed %v", reused, closed)
	}
	s.exit.leaving.Store(true)
	if reused, closed := review(t, c, address); !reused || !closed {
		t.Errorf("a webhook that leaves: connection kept until then %v, closed %v", reused, closed)
	}
	if reused, closed := review(t, c, address); reused || !closed {
		t.Errorf("a webhook that leaves: connection kept %v, closed %v", reused, closed)
	}
}

func TestAWebhookThatIsToldToStopLeavesForAMomentAndThenEnds(t *testing.T) {
	var e exit
	told, tell := context.WithCancel(t.Context())
	working, stop := e.extendContext(told, time.Millisecond)
	defer stop()
	if e.leaving.Load() || working.Err() != nil {
		t.Error("it leaves without being told")
	}
	tell()
	<-working.Done()
	if !e.leaving.Load() {
		t.Error("it ended and never left")
	}

	var long exit
	working, stop = long.extendContext(told, time.Hour)
	defer stop()
	if err := eventually(t.Context(), long.leaving.Load); err != nil || working.Err() != nil {
		t.Errorf("it works on until its time is over: %v, %v", err, working.Err())
	}
}
