// SPDX-License-Identifier: Apache-2.0

// Package endpointtest is an API server in memory that knows tokens and rights, and a client of
// pages that are served over HTTPS, for tests of programs that serve such pages.
package endpointtest

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Users is what the API server knows. Safe for concurrent use.
type Users struct {
	mu sync.Mutex
	// names are the users by token, paths what each may get.
	names map[string]string
	paths map[string]map[string]bool
	// down is what every review fails with, nil while the API server answers.
	down error
	// reviews counts what was asked, of both kinds.
	reviews int
	// entered, if set, is sent to by each TokenReview, which waits for leave.
	entered chan<- string
	leave   <-chan struct{}
}

// NewUsers returns an API server that knows nobody.
func NewUsers() *Users {
	return &Users{names: map[string]string{}, paths: map[string]map[string]bool{}}
}

// Issue makes a token of a user valid.
func (u *Users) Issue(token, user string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.names[token] = user
}

// Revoke ends a token.
func (u *Users) Revoke(token string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.names, token)
}

// Allow says whether a user may get a path.
func (u *Users) Allow(user, path string, may bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.paths[user] == nil {
		u.paths[user] = map[string]bool{}
	}
	u.paths[user][path] = may
}

// Fail has every review fail with err; nil ends that.
func (u *Users) Fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.down = err
}

// Reviews is how many reviews were asked for.
func (u *Users) Reviews() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.reviews
}

// Hold has each TokenReview send its token to entered and wait for leave to be closed.
func (u *Users) Hold(entered chan<- string, leave <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.entered, u.leave = entered, leave
}

// Client is a client of the API server, which runs until the test ends.
func (u *Users) Client(t testing.TB) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// ServeHTTP implements http.Handler.
func (u *Users) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var out any
	var err error
	switch r.URL.Path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		var in authenticationv1.TokenReview
		if err = json.NewDecoder(r.Body).Decode(&in); err == nil {
			out, err = u.token(&in)
		}
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		var in authorizationv1.SubjectAccessReview
		if err = json.NewDecoder(r.Body).Decode(&in); err == nil {
			out, err = u.access(&in)
		}
	default:
		err = apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path)
	}
	code := http.StatusCreated
	if err != nil {
		status := apierrors.NewInternalError(err).Status()
		var known apierrors.APIStatus
		if errors.As(err, &known) {
			status = known.Status()
		}
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		out, code = status, int(status.Code)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(out)
}

func (u *Users) token(r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	u.mu.Lock()
	u.reviews++
	entered, leave := u.entered, u.leave
	u.mu.Unlock()
	if entered != nil {
		entered <- r.Spec.Token
		<-leave
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down != nil {
		return nil, u.down
	}
	out := &authenticationv1.TokenReview{TypeMeta: metav1.TypeMeta{Kind: "TokenReview", APIVersion: "authentication.k8s.io/v1"}}
	if name, known := u.names[r.Spec.Token]; known {
		out.Status.Authenticated, out.Status.User.Username = true, name
	}
	return out, nil
}

func (u *Users) access(r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reviews++
	if u.down != nil {
		return nil, u.down
	}
	out := &authorizationv1.SubjectAccessReview{TypeMeta: metav1.TypeMeta{Kind: "SubjectAccessReview", APIVersion: "authorization.k8s.io/v1"}}
	what := r.Spec.NonResourceAttributes
	out.Status.Allowed = what != nil && what.Verb == "get" && u.paths[r.Spec.User][what.Path]
	return out, nil
}

// Get asks for a page with the given Authorization header, "" for none. It checks no certificate.
func Get(url, authorization string) (*http.Response, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	return client.Do(request)
}
