// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"deviceshare/endpoint/endpointtest"
)

// secret is what the guarded page says.
const secret = "tenant-a/pod-1 holds GPU-1"

func page(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, secret) }

// unpaced is an Access that may ask as often as it likes.
func unpaced(t *testing.T, u *endpointtest.Users, now clock.PassiveClock) *Access {
	t.Helper()
	return newAccess(u.Client(t), now, flowcontrol.NewFakeAlwaysRateLimiter())
}

// ask asks a handler for a path with Authorization headers, from an address.
func ask(h http.Handler, method, path, address string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = address
	for _, value := range headers {
		r.Header.Add("Authorization", value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const stranger = "10.0.0.9:4711"

func TestAPageIsShownToItsReadersOnlyAndARefusalSaysWhatToDo(t *testing.T) {
	u := endpointtest.NewUsers()
	u.Issue("reader", "system:serviceaccount:monitoring:prometheus")
	u.Allow("system:serviceaccount:monitoring:prometheus", "/metrics", true)
	u.Issue("editor", "system:serviceaccount:tenant-a:default")
	h := unpaced(t, u, clock.RealClock{}).Guard("/metrics", http.HandlerFunc(page))
	for name, c := range map[string]struct {
		method  string
		headers []string
		code    int
		says    string
	}{
		"a reader":                               {http.MethodGet, []string{"Bearer reader"}, 200, secret},
		"a scheme in another case":               {http.MethodGet, []string{"bearer reader"}, 200, secret},
		"nobody":                                 {http.MethodGet, nil, 401, "kubectl create token"},
		"an empty token":                         {http.MethodGet, []string{"Bearer "}, 401, ReaderRole},
		"another scheme":                         {http.MethodGet, []string{"Basic reader"}, 401, "Authorization: Bearer TOKEN"},
		"no scheme":                              {http.MethodGet, []string{"reader"}, 401, "Authorization: Bearer TOKEN"},
		"a token that is not known":              {http.MethodGet, []string{"Bearer reade"}, 401, "may have expired"},
		"two tokens, of which one is a reader's": {http.MethodGet, []string{"Bearer reader", "Bearer editor"}, 401, ReaderRole},
		"a token with a line break":              {http.MethodGet, []string{"Bearer reader\r\n"}, 401, ReaderRole},
		"two tokens in one header":               {http.MethodGet, []string{"Bearer reader, Bearer editor"}, 401, ReaderRole},
		"a user without the right":               {http.MethodGet, []string{"Bearer editor"}, 403, "bind ClusterRole " + ReaderRole},
		"a reader who writes":                    {http.MethodPost, []string{"Bearer reader"}, 405, "only GET"},
		"a stranger who asks with HEAD":          {http.MethodHead, nil, 405, "only GET"},
	} {
		got := ask(h, c.method, "/metrics", stranger, c.headers...)
		if got.Code != c.code || !strings.Contains(got.Body.String(), c.says) {
			t.Errorf("%s: %d %q, want %d with %q", name, got.Code, got.Body, c.code, c.says)
		}
		if c.code != http.StatusOK && strings.Contains(got.Body.String(), secret) {
			t.Errorf("%s: the refusal shows the page", name)
		}
		if has := got.Header().Get("WWW-Authenticate") != ""; has != (c.code == http.StatusUnauthorized) {
			t.Errorf("%s: WWW-Authenticate is there: %v", name, has)
		}
	}
}

func TestARightIsForOnePathWhateverTheRequestCallsIt(t *testing.T) {
	u := endpointtest.NewUsers()
	u.Issue("t", "user")
	u.Allow("user", "/debug/pprof/", true)
	a, mux := unpaced(t, u, clock.RealClock{}), http.NewServeMux()
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/profile"} {
		mux.Handle(path, a.Guard(path, http.HandlerFunc(page)))
	}
	for path, code := range map[string]int{
		"/debug/pprof/":               200,
		"/debug/pprof/heap":           200, // a profile of the index page
		"/debug/pprof/profile":        403,
		"/metrics":                    403,
		"/debug/pprof/../../metrics":  http.StatusTemporaryRedirect,
		"//metrics":                   http.StatusTemporaryRedirect,
		"/debug/pprof/%2e%2e/metrics": 200, // the index page still, not the metrics
		"/elsewhere":                  404,
	} {
		got := ask(mux, http.MethodGet, path, stranger, "Bearer t")
		redirected := code == http.StatusTemporaryRedirect && got.Code/100 == 3
		if got.Code != code && !redirected || code != 200 && strings.Contains(got.Body.String(), secret) {
			t.Errorf("%s: %d %q, want %d", path, got.Code, got.Body, code)
		}
	}
}

func TestWhatCannotBeFoundOutIsRefusedAndItsCauseIsNotTold(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"the API server is away": {fmt.Errorf("dial tcp 10.96.0.1:443: refused"), "cannot be asked who may read this page: try again"},
		"the program lacks the right to ask": {
			apierrors.NewForbidden(schema.GroupResource{Resource: "tokenreviews"}, "", fmt.Errorf("10.96.0.1")), "give it the ClusterRole of the chart"},
	} {
		u := endpointtest.NewUsers()
		u.Issue("t", "user")
		u.Allow("user", "/metrics", true)
		u.Fail(c.err)
		a := unpaced(t, u, clock.RealClock{})
		h := a.Guard("/metrics", http.HandlerFunc(page))
		got := ask(h, http.MethodGet, "/metrics", stranger, "Bearer t")
		if got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Body.String(), c.says) {
			t.Errorf("%s: %d %q", name, got.Code, got.Body)
		}
		if strings.Contains(got.Body.String(), "10.96") || strings.Contains(got.Body.String(), secret) {
			t.Errorf("%s: it tells %q", name, got.Body)
		}
		u.Fail(nil)
		if got := ask(h, http.MethodGet, "/metrics", stranger, "Bearer t"); got.Code != http.StatusOK {
			t.Errorf("%s: afterwards %d %q: a failure must not be remembered", name, got.Code, got.Body)
		}
	}
}

// TestRandomRequestsGetWhatAListOfRightsSays compares the guard with a list that is searched anew
// for each request. Rights and tokens come and go. What was granted may be seen for grantedFor
// afterwards and no longer; what is given is seen after refusedFor at the latest.
func TestRandomRequestsGetWhatAListOfRightsSays(t *testing.T) {
	for seed := range uint64(30) {
		oracle := newOracle(t, rand.New(rand.NewPCG(seed, 24)))
		for range 300 {
			oracle.step()
		}
		if oracle.shown == 0 || oracle.refused == 0 {
			t.Fatalf("seed %d: %d shown, %d refused: it tries nothing", seed, oracle.shown, oracle.refused)
		}
	}
}

// right is one line of the oracle's list: at time `at`, token and path were good or not.
type right struct {
	token, path string
	good        bool
	at          time.Time
}

type oracle struct {
	t      *testing.T
	random *rand.Rand
	users  *endpointtest.Users
	clock  *testclock.FakeClock
	pages  map[string]http.Handler
	// owners and may are the world now, history what it was at every change.
	owners  map[string]string
	may     map[string]bool
	history []right

	shown, refused int
}

var (
	oracleTokens = []string{"t1", "t2", "t3", "t4"}
	oraclePaths  = []string{"/metrics", "/deviceshare/ledger"}
)

func newOracle(t *testing.T, random *rand.Rand) *oracle {
	o := &oracle{t: t, random: random, users: endpointtest.NewUsers(), clock: testclock.NewFakeClock(time.Unix(1e9, 0)),
		pages: map[string]http.Handler{}, owners: map[string]string{}, may: map[string]bool{}}
	a := unpaced(t, o.users, o.clock)
	for _, path := range oraclePaths {
		o.pages[path] = a.Guard(path, http.HandlerFunc(page))
	}
	o.note()
	return o
}

func (o *oracle) pick(from []string) string { return from[o.random.IntN(len(from))] }

// note writes down what is good now.
func (o *oracle) note() {
	for _, token := range oracleTokens {
		for _, path := range oraclePaths {
			owner, known := o.owners[token]
			o.history = append(o.history, right{token, path, known && o.may[owner+path], o.clock.Now()})
		}
	}
}

// within says whether token and path had the given state at any moment of the last while.
func (o *oracle) within(token, path string, good bool, while time.Duration) bool {
	begin, last := o.clock.Now().Add(-while), false
	for _, r := range o.history {
		if r.token != token || r.path != path {
			continue
		}
		if !r.at.After(begin) {
			last = r.good == good // the state in which the while began
		} else if r.good == good {
			return true
		}
	}
	return last
}

func (o *oracle) step() {
	switch o.random.IntN(8) {
	case 0:
		token, user := o.pick(oracleTokens), o.pick([]string{"ann", "bob"})
		o.owners[token] = user
		o.users.Issue(token, user)
	case 1:
		token := o.pick(oracleTokens)
		delete(o.owners, token)
		o.users.Revoke(token)
	case 2:
		user, path, may := o.pick([]string{"ann", "bob"}), o.pick(oraclePaths), o.random.IntN(2) == 0
		o.may[user+path] = may
		o.users.Allow(user, path, may)
	case 3:
		o.clock.Step(time.Duration(o.random.Int64N(int64(grantedFor))))
	default:
		o.request()
		return
	}
	o.note()
}

func (o *oracle) request() {
	token, path := o.pick(oracleTokens), o.pick(oraclePaths)
	got := ask(o.pages[path], http.MethodGet, path, stranger, "Bearer "+token)
	shown := strings.Contains(got.Body.String(), secret)
	if shown != (got.Code == http.StatusOK) {
		o.t.Fatalf("%d %q", got.Code, got.Body)
	}
	switch {
	case shown && !o.within(token, path, true, grantedFor):
		o.t.Fatalf("%s is shown to %s, who has not been allowed to see it for %s", path, token, grantedFor)
	case !shown && !o.within(token, path, false, refusedFor):
		o.t.Fatalf("%s is refused to %s, who has been allowed to see it for %s: %d %s", path, token, refusedFor, got.Code, got.Body)
	case shown:
		o.shown++
	default:
		o.refused++
	}
}

func TestPagesWithARoomOfTheirOwnDoNotTakeThatOfTheOthers(t *testing.T) {
	u := endpointtest.NewUsers()
	u.Issue("t", "user")
	u.Allow("user", "/page", true)
	entered, leave := make(chan struct{}), make(chan struct{})
	a := unpaced(t, u, clock.RealClock{})
	long := a.WithRequestLimits(3, 2).Guard("/page", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	}))
	done := make(chan struct{})
	for range 2 {
		go func() {
			ask(long, http.MethodGet, "/page", stranger, "Bearer t")
			done <- struct{}{}
		}()
		<-entered
	}
	if got := ask(long, http.MethodGet, "/page", stranger, "Bearer t"); got.Code != http.StatusTooManyRequests {
		t.Errorf("a third viewer from one address: %d", got.Code)
	}
	if got := ask(a.Guard("/page", http.HandlerFunc(page)), http.MethodGet, "/page", stranger, "Bearer t"); got.Code != http.StatusOK {
		t.Errorf("the other pages: %d", got.Code)
	}
	if asked := u.Reviews(); asked != 2 {
		t.Errorf("the API server was asked %d times about one token and one path", asked)
	}
	close(leave)
	<-done
	<-done
}
