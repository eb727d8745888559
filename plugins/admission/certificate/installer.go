// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
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
	// retryEvery is how soon a failed installation is repeated.
	retryEvery = 2 * time.Second
	// maxTries bounds how often one Sync starts over because another installer has
	// written a Secret first.
	maxTries = 5
)

// Publisher tells clients which CAs to trust.
type Publisher interface {
	// Publish makes clients trust exactly the CAs of bundle (PEM). It is called again
	// with the same bundle and must then be cheap.
	Publish(ctx context.Context, bundle []byte) error
}

// Options are what an Installer needs. All fields are required.
type Options struct {
	// Client must read the Secrets from the API server, not from a cache.
	Client client.Client
	// Namespace is that of the two Secrets: Authorities with the keys of the CAs, and
	// Serving with the serving certificate.
	Namespace, Authorities, Serving string
	// Hosts are the names and addresses clients call.
	Hosts     []string
	Policy    Policy
	Clock     clock.Clock
	Publisher Publisher
	Log       logr.Logger
}

// Installer makes and renews authorities and serving certificate. Any number may work on the
// same Secrets at the same time, and each may be killed between any two of its writes.
type Installer struct{ o Options }

// NewInstaller checks the options.
func NewInstaller(o Options) (*Installer, error) {
	if err := o.Policy.Validate(); err != nil {
		return nil, err
	}
	if len(o.Hosts) == 0 {
		return nil, errors.New("certificate installer: no host name to serve under")
	}
	return &Installer{o: o}, nil
}

// Install runs Sync until it succeeds or ctx ends. It returns what failed last.
func (i *Installer) Install(ctx context.Context) error {
	var last error
	for {
		_, err := i.Sync(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		i.o.Log.Error(err, "installing the webhook's certificates; trying again", "in", retryEvery.String())
		timer := i.o.Clock.NewTimer(retryEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return last
		case <-timer.C():
		}
	}
}

// Sync brings authorities, published bundle and serving certificate up to date, in this order: a
// certificate is handed to servers only when its CA is published.
func (i *Installer) Sync(ctx context.Context) (State, error) {
	for range maxTries {
		state, err := i.syncOnce(ctx)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return state, err
		}
	}
	return State{}, fmt.Errorf("install the webhook's certificates: other writers won %d times in a row", maxTries)
}

// syncOnce is one Sync. An error that is a conflict says that another installer was faster.
func (i *Installer) syncOnce(ctx context.Context) (State, error) {
	authorities, serving, state, err := i.readState(ctx)
	if err != nil {
		return State{}, err
	}
	next, plan, err := Renew(state, i.o.Clock.Now(), i.o.Hosts, i.o.Policy)
	if err != nil {
		return State{}, err
	}
	data, err := EncodeAuthorities(next)
	if err != nil {
		return State{}, err
	}
	if authorities, err = i.writeSecret(ctx, i.o.Authorities, authorities, data); err != nil {
		return State{}, err
	}
	if err := i.o.Publisher.Publish(ctx, Bundle(next)); err != nil {
		return State{}, fmt.Errorf("publish the webhook's CA: %w", err)
	}
	if err := i.requireUnchanged(ctx, authorities); err != nil {
		return State{}, err
	}
	if data, err = EncodeServing(next); err != nil {
		return State{}, err
	}
	if _, err := i.writeSecret(ctx, i.o.Serving, serving, data); err != nil {
		return State{}, err
	}
	if !plan.IsEmpty() {
		i.o.Log.Info("renewed certificates", "authority", plan.AddAuthority.String(), "serving", plan.Reissue.String(),
			"droppedAuthorities", plan.Drop, "servingEnds", next.Serving.Certificate.NotAfter.Format(time.RFC3339))
	}
	return next, nil
}

// readState returns both Secrets, nil where there is none, and what they hold. Damaged data of
// ours counts as empty: new material is made, and published before it is served.
func (i *Installer) readState(ctx context.Context) (authorities, serving *corev1.Secret, s State, err error) {
	if authorities, err = i.readSecret(ctx, i.o.Authorities); err != nil {
		return nil, nil, State{}, err
	}
	if serving, err = i.readSecret(ctx, i.o.Serving); err != nil {
		return nil, nil, State{}, err
	}
	pairs, err := DecodeAuthorities(dataOf(authorities))
	if err := i.tolerateDamage(i.o.Authorities, err); err != nil {
		return nil, nil, State{}, err
	}
	served, bundle, err := DecodeServing(dataOf(serving))
	if err := i.tolerateDamage(i.o.Serving, err); err != nil {
		return nil, nil, State{}, err
	}
	return authorities, serving, newState(pairs, served, bundle), nil
}

// tolerateDamage logs what is wrong with data of ours, and returns an error for that of others.
func (i *Installer) tolerateDamage(name string, err error) error {
	if errors.Is(err, ErrForeign) {
		return fmt.Errorf("certificate Secret %s/%s: %w; empty it, or name another one", i.o.Namespace, name, err)
	}
	if err != nil {
		i.o.Log.Error(err, "a certificate Secret is damaged; making it anew", "namespace", i.o.Namespace, "secret", name)
	}
	return nil
}

func dataOf(s *corev1.Secret) map[string][]byte {
	if s == nil {
		return nil
	}
	return s.Data
}

func (i *Installer) readSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := i.o.Client.Get(ctx, types.NamespacedName{Namespace: i.o.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read certificate Secret %s/%s: %w", i.o.Namespace, name, err)
	}
	return secret, nil
}

// writeSecret creates or updates a Secret if it holds something else, and returns it. The resource
// version of what was read makes the API server refuse a write over somebody else's.
func (i *Installer) writeSecret(ctx context.Context, name string, read *corev1.Secret, data map[string][]byte) (*corev1.Secret, error) {
	if read == nil {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: i.o.Namespace, Name: name},
			Type:       corev1.SecretTypeOpaque,
			Data:       data,
		}
		if err := i.o.Client.Create(ctx, secret); err != nil {
			return nil, fmt.Errorf("create certificate Secret %s/%s, which the chart makes: %w", i.o.Namespace, name, err)
		}
		return secret, nil
	}
	if maps.EqualFunc(read.Data, data, bytes.Equal) {
		return read, nil
	}
	secret := read.DeepCopy()
	secret.Data = data
	if err := i.o.Client.Update(ctx, secret); err != nil {
		return nil, fmt.Errorf("update certificate Secret %s/%s: %w", i.o.Namespace, name, err)
	}
	return secret, nil
}

// requireUnchanged returns a conflict if the authorities are no longer those that were published:
// another installer may have published its own before.
func (i *Installer) requireUnchanged(ctx context.Context, authorities *corev1.Secret) error {
	now, err := i.readSecret(ctx, i.o.Authorities)
	if err != nil {
		return err
	}
	if now == nil || now.ResourceVersion != authorities.ResourceVersion {
		return apierrors.NewConflict(corev1.Resource("secrets"), i.o.Authorities, errors.New("other authorities were published meanwhile"))
	}
	return nil
}
