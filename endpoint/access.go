// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

// How long an answer of the API server counts. A token or a right that is taken away reads for
// grantedFor more at most, which is how long the kubelet believes a token. A right that is given
// counts after refusedFor.
const (
	grantedFor = 2 * time.Minute
	refusedFor = 10 * time.Second
)

// Bounds on what strangers can make this program do.
const (
	// remembered is how many grants are kept, and as many refusals apart from them: a flood of
	// unknown tokens must not displace the known ones.
	remembered = 1024
	// reviewsPerSecond and reviewBurst bound how often the API server is asked.
	reviewsPerSecond, reviewBurst = 10, 20
	// reviewPatience is how long a request waits for its turn and for the API server's answers.
	reviewPatience = 5 * time.Second
)

// verdict is whether a request may have a page.
type verdict int

// The verdicts. The zero value grants nothing.
const (
	// noToken is a request without a token that could be one.
	noToken verdict = iota
	// unknownToken is a token that the API server does not accept.
	unknownToken
	// forbidden is a user who may not get the path.
	forbidden
	// granted is a user who may.
	granted
)

// decision is what the API server said of a token and a path.
type decision struct {
	verdict verdict
	// user is whose token it is, empty for unknownToken.
	user string
}

// errOverrun is why the API server was not asked at all.
var errOverrun = errors.New("too many unknown tokens at once")

// key is a token and a path. The token is hashed, so that the caches hold no credentials and a
// long token costs no more than a short one.
type key struct {
	token [sha256.Size]byte
	path  string
}

// Access finds out who may read which path, by asking the API server. Safe for concurrent use.
type Access struct {
	client kubernetes.Interface
	// salt makes the hashes those of this process.
	salt             [sha256.Size]byte
	pace             flowcontrol.RateLimiter
	granted, refused *cache.LRUExpireCache
	room             *requestLimiter
}

// NewAccess returns an Access that asks by a client. The client's account needs the right to create
// tokenreviews and subjectaccessreviews.
func NewAccess(client kubernetes.Interface) *Access {
	pace := flowcontrol.NewTokenBucketRateLimiter(reviewsPerSecond, reviewBurst)
	return newAccess(client, clock.RealClock{}, pace)
}

func newAccess(client kubernetes.Interface, now cache.Clock, pace flowcontrol.RateLimiter) *Access {
	a := &Access{
		client: client, pace: pace, room: newRequestLimiter(requestsAtOnce, requestsOfOneAddress),
		granted: cache.NewLRUExpireCacheWithClock(remembered, now),
		refused: cache.NewLRUExpireCacheWithClock(remembered, now),
	}
	_, _ = rand.Read(a.salt[:]) // never fails: it ends the program instead
	return a
}

// WithRequestLimits returns an Access that knows what a knows and answers that many requests at
// once, in all and for one address: for pages whose readers come from one address, or stay for
// long.
func (a *Access) WithRequestLimits(all, each int) *Access {
	b := *a
	b.room = newRequestLimiter(all, each)
	return &b
}

// authorizeToken says whether a token may get a path. An error means that this is not known.
func (a *Access) authorizeToken(ctx context.Context, token, path string) (decision, error) {
	k := key{path: path}
	mac := hmac.New(sha256.New, a.salt[:])
	_, _ = mac.Write([]byte(token)) // a hash never fails
	mac.Sum(k.token[:0])
	for _, known := range []*cache.LRUExpireCache{a.granted, a.refused} {
		if d, ok := known.Get(k); ok {
			return d.(decision), nil
		}
	}
	d, err := a.reviewToken(ctx, token, path)
	switch {
	case err != nil:
		return decision{}, err
	case d.verdict == granted:
		a.granted.Add(k, d, grantedFor)
	default:
		a.refused.Add(k, d, refusedFor)
	}
	return d, nil
}

func (a *Access) reviewToken(ctx context.Context, token, path string) (decision, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewPatience)
	defer cancel()
	if err := a.pace.Wait(ctx); err != nil {
		return decision{}, fmt.Errorf("wait to ask whose token this is: %w: %w", errOverrun, err)
	}
	who, err := a.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return decision{}, fmt.Errorf("ask whose token this is: %w", err)
	}
	if !who.Status.Authenticated || who.Status.User.Username == "" {
		return decision{verdict: unknownToken}, nil
	}
	user := who.Status.User
	may, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: convertExtra(user.Extra),
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return decision{}, fmt.Errorf("ask whether user %q may get %s: %w", user.Username, path, err)
	}
	if !may.Status.Allowed || may.Status.Denied {
		return decision{forbidden, user.Username}, nil
	}
	return decision{granted, user.Username}, nil
}

// convertExtra is what one API calls authentication.ExtraValue and the other
// authorization.ExtraValue.
func convertExtra(from map[string]authenticationv1.ExtraValue) map[string]authorizationv1.ExtraValue {
	if len(from) == 0 {
		return nil
	}
	out := make(map[string]authorizationv1.ExtraValue, len(from))
	for name, values := range from {
		out[name] = authorizationv1.ExtraValue(values)
	}
	return out
}
