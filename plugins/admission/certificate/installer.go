// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// retryEvery is how soon a failed installation is repeated.
const retryEvery = 2 * time.Second

// Installer makes and renews the certificate, and has clients trust it. Any number may work on the
// same Secret at the same time, and each may be killed between any two of its writes. All fields
// are required.
type Installer struct {
	// Client must read from the API server, not from a cache.
	Client client.Client
	// Secret names what servers mount. The chart creates it.
	Secret client.ObjectKey
	// Configurations are told what to trust. The chart creates them.
	Configurations []Configuration
	// Hosts are the names and addresses that clients call.
	Hosts []string
	Clock clock.PassiveClock
	Log   logr.Logger
}

// Install runs Sync until it succeeds or ctx ends. It returns what failed last.
func (i *Installer) Install(ctx context.Context) (last error) {
	try := func(ctx context.Context) (bool, error) {
		err := i.Sync(ctx)
		if err != nil {
			i.Log.Error(err, "installing the webhook's certificate; trying again", "in", retryEvery.String())
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	}
	if wait.PollUntilContextCancel(ctx, retryEvery, true, try) != nil {
		return last
	}
	return nil
}

// Sync brings Secret and configurations up to date. Each certificate is stored before it is
// published, so that what was published last is what the Secret says, and published before it is
// served. An error that is a conflict says that another installer was faster: Sync again.
func (i *Installer) Sync(ctx context.Context) error {
	secret, s, err := i.readSecret(ctx)
	if err != nil {
		return err
	}
	s = s.withoutExpired(i.Clock.Now())
	if what, why := s.Due(i.Clock.Now(), i.Hosts); what == Make {
		next, err := newCertificate(i.Clock.Now(), i.Hosts)
		if err != nil {
			return err
		}
		s = s.withNext(next)
		i.Log.Info("made a certificate", "why", why, "notAfter", next.Leaf.NotAfter.Format(time.RFC3339))
	}
	if err := i.updateSecret(ctx, secret, s); err != nil {
		return err
	}
	changed, err := i.publishBundle(ctx, encodeCertificates(s.trustedCertificates()...))
	if err != nil {
		return err
	}
	now := i.Clock.Now()
	if s.Next != nil && (changed || s.Published.IsZero() || s.Published.After(now)) {
		s.Published = now
	}
	if what, why := s.Due(now, i.Hosts); what == Serve {
		s = s.serveNext()
		i.Log.Info("handed a certificate to the servers", "why", why, "serial", s.Serving.Leaf.SerialNumber.Text(16))
	}
	return i.updateSecret(ctx, secret, s)
}

// readSecret returns the Secret and what it holds. What is damaged counts as missing: new
// material is made, and published before it is served.
func (i *Installer) readSecret(ctx context.Context) (*corev1.Secret, State, error) {
	secret := &corev1.Secret{}
	if err := i.Client.Get(ctx, i.Secret, secret); err != nil {
		return nil, State{}, fmt.Errorf("read certificate Secret %s, which the chart makes: %w", i.Secret, err)
	}
	s, err := decodeState(secret.Data)
	if errors.Is(err, ErrForeign) {
		return nil, State{}, fmt.Errorf("certificate Secret %s: %w; empty it, or name another one", i.Secret, err)
	}
	if err != nil {
		i.Log.Error(err, "the certificate Secret is damaged; what is damaged is made again", "secret", i.Secret.String())
	}
	return secret, s, nil
}

// updateSecret writes the state. The resource version of what was read makes the API server refuse
// that if another installer was faster, also where nothing changes: it may have published less than
// is served.
func (i *Installer) updateSecret(ctx context.Context, secret *corev1.Secret, s State) (err error) {
	if secret.Data, err = encodeState(s); err != nil {
		return err
	}
	if err := i.Client.Update(ctx, secret); err != nil {
		return fmt.Errorf("update certificate Secret %s: %w", i.Secret, err)
	}
	return nil
}
