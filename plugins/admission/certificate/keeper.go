// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// checkEvery is how often the Secret and what was published are checked. If somebody
	// deletes either, it is made again within this time.
	checkEvery = time.Minute
	// retryEvery is how soon a failed check is repeated.
	retryEvery = 5 * time.Second
	// maxTries bounds how often one Sync starts over because another replica has written
	// the Secret first.
	maxTries = 5
)

// Publisher tells clients which CAs to trust.
type Publisher interface {
	// Publish makes clients trust exactly the CAs of bundle (PEM). It is called again
	// with the same bundle and must then be cheap.
	Publish(ctx context.Context, bundle []byte) error
}

// Options are what a Keeper needs. All fields but OnServe are required.
type Options struct {
	// Client must read the Secret from the API server, not from a cache.
	Client client.Client
	Secret types.NamespacedName
	// Hosts are the names and addresses clients call.
	Hosts     []string
	Policy    Policy
	Clock     clock.Clock
	Publisher Publisher
	Log       logr.Logger
	// OnServe, if set, is told the end of the certificate that is served, once
	// for each new one.
	OnServe func(notAfter time.Time)
}

// Keeper keeps the Secret fresh, the bundle published and the current
// certificate served. Any number of replicas may run one for the same Secret.
// Its methods may be called from several goroutines, but Sync and Start only
// from one.
type Keeper struct {
	o       Options
	poke    chan struct{}
	current atomic.Pointer[tls.Certificate]
	serving chan struct{} // closed with the first certificate
}

// NewKeeper checks the options.
func NewKeeper(o Options) (*Keeper, error) {
	if err := o.Policy.Validate(); err != nil {
		return nil, err
	}
	if len(o.Hosts) == 0 {
		return nil, errors.New("certificate keeper: no host name to serve under")
	}
	return &Keeper{o: o, poke: make(chan struct{}, 1), serving: make(chan struct{})}, nil
}

// GetCertificate serves tls.Config. Before the first successful Sync it fails,
// and the API server treats the call as failed.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.current.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("no serving certificate yet")
}

// Serving returns a channel that is closed as soon as there is a certificate to
// serve.
func (k *Keeper) Serving() <-chan struct{} { return k.serving }

// Ready is a readiness check: ready when a certificate that has not expired is
// served.
func (k *Keeper) Ready(*http.Request) error {
	c, err := k.GetCertificate(nil)
	if err != nil {
		return err
	}
	if end := c.Leaf.NotAfter; !k.o.Clock.Now().Before(end) {
		return fmt.Errorf("the serving certificate expired at %s", end.Format(time.RFC3339))
	}
	return nil
}

// NeedLeaderElection says that every replica runs its keeper.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Poke asks for a Sync now, for when what is published has to change. It never
// blocks.
func (k *Keeper) Poke() {
	select {
	case k.poke <- struct{}{}:
	default:
	}
}

// Start syncs until ctx ends. Failures are logged and retried: a webhook that
// cannot reach the API server goes on with what it has.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		wait := checkEvery
		if err := k.Sync(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			k.o.Log.Error(err, "keeping the webhook's certificates; trying again", "in", retryEvery.String())
			wait = retryEvery
		}
		timer := k.o.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-k.poke:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// Sync brings Secret, published bundle and served certificate up to date, in
// this order: a certificate is served only when its CA is published. The one
// exception: if the certificate that is served has expired, its successor does not
// wait for that.
func (k *Keeper) Sync(ctx context.Context) error {
	state, err := k.renewSecret(ctx)
	if err != nil {
		return fmt.Errorf("certificate Secret %s: %w", k.o.Secret, err)
	}
	published := k.o.Publisher.Publish(ctx, Bundle(state))
	if expired := k.current.Load() != nil && k.Ready(nil) != nil; published != nil && !expired {
		return fmt.Errorf("publish the webhook's CA: %w", published)
	}
	k.serve(*state.Serving)
	if published != nil {
		return fmt.Errorf("publish the webhook's CA: %w", published)
	}
	return nil
}

func (k *Keeper) serve(p Pair) {
	old := k.current.Load()
	if old != nil && old.Leaf.Equal(p.Certificate) {
		return
	}
	k.current.Store(p.TLS())
	if old == nil {
		close(k.serving)
	}
	k.o.Log.Info("serving a new certificate", "serial", p.Certificate.SerialNumber.Text(16),
		"notAfter", p.Certificate.NotAfter.Format(time.RFC3339))
	if k.o.OnServe != nil {
		k.o.OnServe(p.Certificate.NotAfter)
	}
}

// renewSecret reads the Secret, renews what is due and writes it back. If another replica
// has written the Secret meanwhile, it starts over.
func (k *Keeper) renewSecret(ctx context.Context) (State, error) {
	for range maxTries {
		secret, state, err := k.read(ctx)
		if err != nil {
			return State{}, err
		}
		next, plan, err := Renew(state, k.o.Clock.Now(), k.o.Hosts, k.o.Policy)
		if err != nil {
			return State{}, err
		}
		if plan.IsEmpty() {
			return next, nil
		}
		err = k.write(ctx, secret, next)
		if err == nil {
			k.o.Log.Info("renewed certificates", "secret", k.o.Secret.String(),
				"authority", plan.AddAuthority.String(), "serving", plan.Reissue.String(), "expiredAuthorities", plan.Drop)
			return next, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return State{}, err
		}
	}
	return State{}, fmt.Errorf("other writers won %d times in a row", maxTries)
}

// read returns the Secret, nil if there is none. Damaged data of ours counts as
// empty: new material is made, and published before it is served.
func (k *Keeper) read(ctx context.Context) (*corev1.Secret, State, error) {
	secret := &corev1.Secret{}
	err := k.o.Client.Get(ctx, k.o.Secret, secret)
	if apierrors.IsNotFound(err) {
		return nil, State{}, nil
	}
	if err != nil {
		return nil, State{}, fmt.Errorf("read: %w", err)
	}
	state, err := Decode(secret.Data)
	if errors.Is(err, ErrForeign) {
		return nil, State{}, fmt.Errorf("%w; delete it, or name another one with --secret-name", err)
	}
	if err != nil {
		k.o.Log.Error(err, "the certificate Secret is damaged; making new certificates", "secret", k.o.Secret.String())
	}
	return secret, state, nil
}

// write creates or updates the Secret. The resource version of what was read
// makes the API server refuse a write over somebody else's.
func (k *Keeper) write(ctx context.Context, read *corev1.Secret, s State) error {
	data, err := Encode(s)
	if err != nil {
		return err
	}
	if read == nil {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: k.o.Secret.Namespace, Name: k.o.Secret.Name},
			Type:       corev1.SecretTypeOpaque,
			Data:       data,
		}
		if err := k.o.Client.Create(ctx, secret); err != nil {
			return fmt.Errorf("create: %w", err)
		}
		return nil
	}
	secret := read.DeepCopy()
	secret.Data = data
	if err := k.o.Client.Update(ctx, secret); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	return nil
}
