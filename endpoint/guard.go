// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// ReaderRole is the ClusterRole of the chart whose users may read every page.
const ReaderRole = "deviceshare-metrics-reader"

// maxToken is the longest token that the API server is asked about, in bytes. Tokens of service
// accounts have about 1,200.
const maxToken = 16 << 10

// Guard returns a handler that shows a page to those who may get path. What it asks about is path,
// never what the request names, so that a page has one name only.
func (a *Access) Guard(path string, page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "only GET is served here", http.StatusMethodNotAllowed)
			return
		}
		token, ok := parseBearerToken(r.Header.Values("Authorization"))
		if !ok {
			writeRefusal(w, decision{verdict: noToken}, path)
			return
		}
		address := stripPort(r.RemoteAddr)
		if !a.room.acquireSlot(address) {
			writeTooManyRequests(w)
			return
		}
		defer a.room.releaseSlot(address)
		switch d, err := a.authorizeToken(r.Context(), token, path); {
		case err != nil:
			writeReviewError(w, err)
		case d.verdict != granted:
			writeRefusal(w, d, path)
		default:
			page.ServeHTTP(w, r)
		}
	})
}

// parseBearerToken reads the token of a request. It is false where there is none, or what cannot be
// one: of that the API server is not asked.
func parseBearerToken(headers []string) (string, bool) {
	if len(headers) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	token = strings.Trim(token, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken {
		return "", false
	}
	for i := range len(token) {
		if !isTokenByte(token[i]) {
			return "", false
		}
	}
	return token, true
}

// isTokenByte tells the bytes of which RFC 6750 lets tokens be made.
func isTokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~+/=", c) >= 0
}

func stripPort(address string) string {
	if h, _, err := net.SplitHostPort(address); err == nil {
		return h
	}
	return address
}

// writeRefusal says why a request does not get the page, and what to do.
func writeRefusal(w http.ResponseWriter, d decision, path string) {
	if d.verdict == forbidden {
		http.Error(w, fmt.Sprintf("user %q may not get %s: bind ClusterRole %s to it, "+
			"as in \"kubectl create clusterrolebinding\"", d.user, path, ReaderRole), http.StatusForbidden)
		return
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	why := "this page names pods of all tenants and needs a bearer token"
	if d.verdict == unknownToken {
		why = "the API server does not accept this bearer token, it may have expired"
	}
	http.Error(w, why+`: send "Authorization: Bearer TOKEN" with a token of an account that is bound to ClusterRole `+
		ReaderRole+`, such as "kubectl create token" gives`, http.StatusUnauthorized)
}

// writeReviewError refuses a request about which nothing could be found out. The log has the cause,
// which may name what strangers need not know.
func writeReviewError(w http.ResponseWriter, err error) {
	if errors.Is(err, errOverrun) {
		writeTooManyRequests(w)
		return
	}
	if !errors.Is(err, context.Canceled) { // who hangs up writes nothing into the log
		klog.ErrorS(err, "Refused a request: the API server does not say who may read this page")
	}
	text := "the API server cannot be asked who may read this page: try again, and look into the log of this program"
	if apierrors.IsForbidden(err) {
		text = "the account of this program may not create tokenreviews and subjectaccessreviews: give it the ClusterRole of the chart"
	}
	w.Header().Set("Retry-After", "5")
	http.Error(w, text, http.StatusServiceUnavailable)
}

func writeTooManyRequests(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, "too many requests are being answered: try again in a moment", http.StatusTooManyRequests)
}
