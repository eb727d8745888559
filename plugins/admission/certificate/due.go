// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"time"
)

// Policy is how long things live.
type Policy struct {
	// AuthorityLife and ServingLife are the validity of a new CA and of a new
	// serving certificate. Each is replaced at two thirds of it.
	AuthorityLife, ServingLife time.Duration
	// Handover is how long a new CA is only trusted before it signs. It must be
	// longer than the time in which every API server sees a new bundle.
	Handover time.Duration
	// Retire is how long the authorities before it stay trusted when a new one has
	// signed. It must be longer than the time in which every server reads its new
	// certificate.
	Retire time.Duration
	// Skew is how far back validity starts, for clients whose clock is behind.
	Skew time.Duration
}

// DefaultPolicy returns a CA life of one year, a serving life of 90 days, one hour of
// handover, a day until old authorities are dropped, and five minutes of clock skew.
func DefaultPolicy() Policy {
	const day = 24 * time.Hour
	return Policy{AuthorityLife: 365 * day, ServingLife: 90 * day, Handover: time.Hour, Retire: day, Skew: 5 * time.Minute}
}

// Validate refuses a policy under which rotation would leave a gap.
func (p Policy) Validate() error {
	if p.AuthorityLife <= 0 || p.ServingLife <= 0 || p.Handover < 0 || p.Retire < 0 || p.Skew < 0 {
		return errors.New("certificate policy: lives must be positive, handover, retirement and skew must not be negative")
	}
	if p.Handover >= p.AuthorityLife/3 {
		return errors.New("certificate policy: handover must be shorter than a third of the authority's life")
	}
	return nil
}

// Pair is a certificate and its private key. It is not changed once made.
type Pair struct {
	Certificate *x509.Certificate
	Key         *ecdsa.PrivateKey
	// Shared says that servers could read the key of this authority.
	Shared bool
	// Unpublished says that no installer has ended since it has made this authority: clients may
	// not know it.
	Unpublished bool
}

// State is everything the Secrets hold.
type State struct {
	// Authorities can sign, the newest last.
	Authorities []Pair
	// Retired are authorities whose key is lost. Servers may still serve their certificates.
	Retired []*x509.Certificate
	// Serving is the serving certificate, nil before the first Renew.
	Serving *Pair
}

// Plan is what has to be done now.
type Plan struct {
	// Drop is how many authorities end to be trusted.
	Drop int
	// AddAuthority is why a new CA is made, and Reissue why a new serving certificate is.
	AddAuthority, Reissue Reason
}

// IsEmpty reports that the state can stay as it is.
func (p Plan) IsEmpty() bool { return p == Plan{} }

// Reason is why a certificate is made.
type Reason uint8

// The reasons.
const (
	// NotDue: none is made.
	NotDue Reason = iota
	// Missing: there is none that is valid.
	Missing
	// Aged: the newest one is past two thirds of its life.
	Aged
	// KeyShared: servers could read the key of the newest one.
	KeyShared
	// AuthorityGone: no authority that is trusted has signed it.
	AuthorityGone
	// HostsChanged: clients call the server by a name or address that it lacks.
	HostsChanged
	// SignerChanged: another authority signs now.
	SignerChanged
	reasons = iota
)

// String is the reason for logs.
func (r Reason) String() string {
	return [reasons]string{
		"not due", "there is none that is valid", "past two thirds of its life", "servers could read its key",
		"no trusted authority has signed it", "the server's names have changed", "another authority signs now",
	}[r]
}

// Due decides what has to be done at now for a server called by hosts.
func Due(s State, now time.Time, hosts []string, policy Policy) Plan {
	left := trustedState(s, now, policy)
	plan := Plan{Drop: len(s.Authorities) + len(s.Retired) - len(left.Authorities) - len(left.Retired)}
	switch newest := len(left.Authorities) - 1; {
	case !slices.ContainsFunc(left.Authorities, func(a Pair) bool { return isValid(a.Certificate, now) }):
		plan.AddAuthority = Missing
	case isAged(left.Authorities[newest].Certificate, now):
		plan.AddAuthority = Aged
	case left.Authorities[newest].Shared:
		plan.AddAuthority = KeyShared
	}
	plan.Reissue = reissueReason(left, now, hosts, policy)
	return plan
}

// trustedState returns s without the authorities that have expired, and without those of which no
// server can have a certificate any more. An authority that was not published in the first half of
// its handover is none: when it signs is counted from when it was made.
func trustedState(s State, now time.Time, policy Policy) State {
	isOver := func(c *x509.Certificate) bool { return !now.Before(c.NotAfter) }
	isLate := func(a Pair) bool {
		return a.Unpublished && !now.Before(madeAt(a.Certificate, policy).Add(policy.Handover/2))
	}
	left := State{Serving: s.Serving, Authorities: slices.Clone(s.Authorities), Retired: slices.Clone(s.Retired)}
	if i := issuerIndex(s); i >= 0 && !now.Before(madeAt(s.Serving.Certificate, policy).Add(policy.Retire)) {
		left.Authorities, left.Retired = left.Authorities[i:], nil
	}
	left.Authorities = slices.DeleteFunc(left.Authorities, func(a Pair) bool { return isOver(a.Certificate) || isLate(a) })
	left.Retired = slices.DeleteFunc(left.Retired, isOver)
	return left
}

// reissueReason is why the serving certificate must be made anew. s holds what is trusted.
func reissueReason(s State, now time.Time, hosts []string, policy Policy) Reason {
	if s.Serving == nil || !isValid(s.Serving.Certificate, now) {
		return Missing
	}
	if !isSignedByAny(s) {
		return AuthorityGone
	}
	if !coversHosts(s.Serving.Certificate, hosts) {
		return HostsChanged
	}
	by, isKnown := chooseSigner(s.Authorities, now, policy)
	isItsOwn := by.Certificate != nil && s.Serving.Certificate.CheckSignatureFrom(by.Certificate) == nil
	switch {
	case !isKnown && !isItsOwn:
		return NotDue // a certificate that clients trust is better than one that some may not
	case isAged(s.Serving.Certificate, now):
		return Aged
	case !isItsOwn:
		return SignerChanged
	}
	return NotDue
}

// issuerIndex is the index of the authority that signed the serving certificate, -1 if none did.
func issuerIndex(s State) int {
	if s.Serving == nil {
		return -1
	}
	return slices.IndexFunc(s.Authorities, func(a Pair) bool { return s.Serving.Certificate.CheckSignatureFrom(a.Certificate) == nil })
}

func isSignedByAny(s State) bool {
	return issuerIndex(s) >= 0 || slices.ContainsFunc(s.Retired, func(c *x509.Certificate) bool {
		return s.Serving.Certificate.CheckSignatureFrom(c) == nil
	})
}

// chooseSigner returns the newest valid authority that clients know, which is one that has been
// trusted for the handover time. If there is none, it returns the oldest valid one, which
// clients have known for longest, and false. Without a valid one it is the zero Pair.
func chooseSigner(authorities []Pair, now time.Time, policy Policy) (by Pair, isKnown bool) {
	for _, a := range slices.Backward(authorities) {
		if !isValid(a.Certificate, now) {
			continue
		}
		by = a
		if !now.Before(madeAt(a.Certificate, policy).Add(policy.Handover)) {
			return a, true
		}
	}
	return by, false
}

// madeAt is when a certificate was made.
func madeAt(c *x509.Certificate, policy Policy) time.Time { return c.NotBefore.Add(policy.Skew) }

func isValid(c *x509.Certificate, now time.Time) bool {
	return !now.Before(c.NotBefore) && now.Before(c.NotAfter)
}

// isAged reports that a certificate is past two thirds of its life.
func isAged(c *x509.Certificate, now time.Time) bool {
	life := c.NotAfter.Sub(c.NotBefore)
	return !now.Before(c.NotBefore.Add(life / 3 * 2))
}

// isOverdue reports that a certificate is past five sixths of its life: half of the time in which
// it should have been renewed is over.
func isOverdue(c *x509.Certificate, now time.Time) bool {
	life := c.NotAfter.Sub(c.NotBefore)
	return !now.Before(c.NotBefore.Add(life / 6 * 5))
}

func coversHosts(c *x509.Certificate, hosts []string) bool {
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			if !slices.ContainsFunc(c.IPAddresses, ip.Equal) {
				return false
			}
		} else if !slices.Contains(c.DNSNames, h) {
			return false
		}
	}
	return true
}
