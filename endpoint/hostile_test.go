// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"deviceshare/endpoint/endpointtest"
)

func TestOfWhatCannotBeATokenTheAPIServerIsNotAsked(t *testing.T) {
	u := endpointtest.NewUsers()
	h := unpaced(t, u, clock.RealClock{}).Guard("/metrics", http.HandlerFunc(page))
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		garbage := make([]byte, 1+random.IntN(64))
		for i := range garbage {
			garbage[i] = byte(random.UintN(256))
		}
		garbage[random.IntN(len(garbage))] = "\x00\"{}<>\n%é,;"[random.IntN(11)]
		if got := ask(h, http.MethodGet, "/metrics", stranger, "Bearer "+string(garbage)); got.Code != http.StatusUnauthorized {
			t.Fatalf("%q: %d", garbage, got.Code)
		}
	}
	long := strings.Repeat("a", maxToken+1)
	if got := ask(h, http.MethodGet, "/metrics", stranger, "Bearer "+long); got.Code != http.StatusUnauthorized {
		t.Errorf("a token of %d bytes: %d", len(long), got.Code)
	}
	if u.Reviews() != 0 {
		t.Errorf("the API server was asked %d times", u.Reviews())
	}
}

func TestManyTokensAreForgottenAndDisplaceNoReader(t *testing.T) {
	u := endpointtest.NewUsers()
	u.Issue("reader", "prometheus")
	u.Allow("prometheus", "/metrics", true)
	a := unpaced(t, u, clock.RealClock{})
	h := a.Guard("/metrics", http.HandlerFunc(page))
	if got := ask(h, http.MethodGet, "/metrics", stranger, "Bearer reader"); got.Code != http.StatusOK {
		t.Fatal(got.Code)
	}
	const flood = 3 * remembered
	for i := range flood {
		token := fmt.Sprintf("%d%s", i, strings.Repeat("x", 1000))
		if got := ask(h, http.MethodGet, "/metrics", stranger, "Bearer "+token); got.Code != http.StatusUnauthorized {
			t.Fatal(got.Code)
		}
	}
	if n := len(a.refused.Keys()); n > remembered {
		t.Errorf("%d refusals are remembered, more than %d", n, remembered)
	}
	before := u.Reviews()
	if got := ask(h, http.MethodGet, "/metrics", stranger, "Bearer reader"); got.Code != http.StatusOK || u.Reviews() != before {
		t.Errorf("after the flood the reader gets %d, and the API server was asked %d times", got.Code, u.Reviews()-before)
	}
}

func TestTheAPIServerIsAskedNoMoreOftenThanThePaceAllows(t *testing.T) {
	u := endpointtest.NewUsers()
	u.Issue("reader", "prometheus")
	u.Allow("prometheus", "/metrics", true)
	a := newAccess(u.Client(t), clock.RealClock{}, flowcontrol.NewFakeAlwaysRateLimiter())
	h := a.Guard("/metrics", http.HandlerFunc(page))
	if got := ask(h, http.MethodGet, "/metrics", stranger, "Bearer reader"); got.Code != http.StatusOK {
		t.Fatal(got.Code)
	}
	a.pace = flowcontrol.NewTokenBucketRateLimiter(1e-6, 3) // three now, the next in eleven days
	before := u.Reviews()
	for i := range 50 {
		want := http.StatusUnauthorized
		if i >= 3 {
			want = http.StatusTooManyRequests
		}
		if got := ask(h, http.MethodGet, "/metrics", stranger, fmt.Sprintf("Bearer unknown%d", i)); got.Code != want {
			t.Errorf("request %d: %d, want %d", i, got.Code, want)
		}
	}
	if asked := u.Reviews() - before; asked != 3 {
		t.Errorf("the API server was asked %d times", asked)
	}
	if got := ask(h, http.MethodGet, "/metrics", stranger, "Bearer reader"); got.Code != http.StatusOK {
		t.Errorf("a known reader gets %d", got.Code)
	}
}

func TestOneAddressTakesItsPartOfTheRoomOnly(t *testing.T) {
	u := endpointtest.NewUsers()
	u.Issue("reader", "prometheus")
	u.Allow("prometheus", "/metrics", true)
	h := unpaced(t, u, clock.RealClock{}).Guard("/metrics", http.HandlerFunc(page))
	entered, leave := make(chan string), make(chan struct{})
	u.Hold(entered, leave)
	var flood sync.WaitGroup
	for i := range requestsOfOneAddress {
		flood.Go(func() { ask(h, http.MethodGet, "/metrics", stranger, fmt.Sprintf("Bearer slow%d", i)) })
		<-entered
	}
	if got := ask(h, http.MethodGet, "/metrics", stranger, "Bearer one-more"); got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") == "" {
		t.Errorf("one more of the same address: %d %q", got.Code, got.Body)
	}
	u.Hold(nil, nil)
	if got := ask(h, http.MethodGet, "/metrics", "10.0.0.8:1", "Bearer reader"); got.Code != http.StatusOK {
		t.Errorf("another address: %d %q", got.Code, got.Body)
	}
	close(leave)
	flood.Wait()
	if got := ask(h, http.MethodGet, "/metrics", stranger, "Bearer reader"); got.Code != http.StatusOK {
		t.Errorf("afterwards: %d %q", got.Code, got.Body)
	}
}

func TestARoomIsNeverFullerThanItsBoundsAndIsEmptyInTheEnd(t *testing.T) {
	r := newRequestLimiter(10, 3)
	var crowd sync.WaitGroup
	for i := range 50 {
		crowd.Go(func() {
			address := fmt.Sprint(i % 7)
			for range 200 {
				if !r.acquireSlot(address) {
					continue
				}
				r.mu.Lock()
				if r.inside > 10 || r.from[address] > 3 {
					t.Errorf("%d inside, %d of one address", r.inside, r.from[address])
				}
				r.mu.Unlock()
				r.releaseSlot(address)
			}
		})
	}
	crowd.Wait()
	if r.count() != 0 || len(r.from) != 0 {
		t.Errorf("%d inside, of %v", r.inside, r.from)
	}
}

// count is how many are inside.
func (r *requestLimiter) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inside
}

// open serves a handler on a free port until the test ends.
func open(t *testing.T, h http.Handler, l limits) string {
	t.Helper()
	s, err := listenWithLimits("127.0.0.1:0", h, l)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s.Address()
}

func TestPagesAreServedOverHTTPSOnly(t *testing.T) {
	address := open(t, http.HandlerFunc(page), defaultLimits())
	secure, err := endpointtest.Get("https://"+address, "")
	if err != nil {
		t.Fatal(err)
	}
	defer secure.Body.Close()
	if text, _ := io.ReadAll(secure.Body); secure.StatusCode != http.StatusOK || string(text) != secret || secure.ProtoMajor != 1 {
		t.Errorf("%d %q by HTTP/%d", secure.StatusCode, text, secure.ProtoMajor)
	}
	plain, err := endpointtest.Get("http://"+address, "")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Body.Close()
	if text, _ := io.ReadAll(plain.Body); plain.StatusCode != http.StatusBadRequest || strings.Contains(string(text), secret) {
		t.Errorf("plain HTTP: %d %q", plain.StatusCode, text)
	}
}

func TestConnectionsThatSayNothingOrTooMuchAreEnded(t *testing.T) {
	l := defaultLimits()
	l.header, l.request, l.idle = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	address := open(t, http.HandlerFunc(page), l)
	silent, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := io.ReadAll(silent); err != nil { // returns when the server has hung up
		t.Log(err)
	}
	for name, request := range map[string]string{
		"half a header":           "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bea",
		"a header without an end": "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + strings.Repeat("a", 4*l.headerBytes),
	} {
		c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Logf("%s: hung up on while it said hello: %v", name, err) // on a busy machine
			continue
		}
		_, _ = io.WriteString(c, request) // it may be cut off
		text, _ := io.ReadAll(c)
		if strings.Contains(string(text), secret) {
			t.Errorf("%s: the page is shown", name)
		}
		_ = c.Close()
	}
}

// A reader who asks for a long page and reads nothing of it loses its connection, and its place in
// the room.
func TestAReaderWhoDoesNotReadIsHungUpOn(t *testing.T) {
	u := endpointtest.NewUsers()
	u.Issue("reader", "prometheus")
	u.Allow("prometheus", "/metrics", true)
	ended := make(chan error, 1)
	long := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var err error
		for line := []byte(strings.Repeat("x", 1<<20)); err == nil; {
			_, err = w.Write(line)
		}
		ended <- err
	})
	l := defaultLimits()
	l.answer = 3 * time.Second // handshakes on a busy machine take up to one
	a := unpaced(t, u, clock.RealClock{})
	address := open(t, a.Guard("/metrics", long), l)
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer reader\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the page was written to the end")
	}
	for a.room.count() > 0 { // it leaves when the page has returned
		time.Sleep(time.Millisecond)
	}
}
