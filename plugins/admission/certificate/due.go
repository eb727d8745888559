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
	// Skew is how far back validity starts, for clients whose clock is behind.
	Skew time.Duration
}

// DefaultPolicy returns a CA life of one year, a serving life of 90 days, one
// hour of handover and five minutes of clock skew.
func DefaultPolicy() Policy {
	const day = 24 * time.Hour
	return Policy{AuthorityLife: 365 * day, ServingLife: 90 * day, Handover: time.Hour, Skew: 5 * time.Minute}
}

// Validate refuses a policy under which rotation would leave a gap.
func (p Policy) Validate() error {
	if p.AuthorityLife <= 0 || p.ServingLife <= 0 || p.Handover < 0 || p.Skew < 0 {
		return errors.New("certificate policy: lives must be positive, handover and skew must not be negative")
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
}

// State is everything the Secret holds: authorities, oldest first, and the
// serving certificate (nil before the first Renew).
type State struct {
	Authorities []Pair
	Serving     *Pair
}

// Plan is what has to be done now.
type Plan struct {
	// Drop is how many of the oldest authorities have expired.
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
	// Missing: there is none, or none that is valid.
	Missing
	// Aged: the newest one is past two thirds of its life.
	Aged
	// AuthorityExpired: there is no authority left that signed it.
	AuthorityExpired
	// HostsChanged: clients call the server by a name or address that it lacks.
	HostsChanged
	// SignerChanged: another authority signs now.
	SignerChanged
	reasons = iota
)

// String is the reason for logs.
func (r Reason) String() string {
	return [reasons]string{
		"not due", "there is none that is valid", "past two thirds of its life", "its authority has expired",
		"the server's names have changed", "another authority signs now",
	}[r]
}

// Due decides what has to be done at now for a server called by hosts.
func Due(s State, now time.Time, hosts []string, policy Policy) Plan {
	var plan Plan
	for plan.Drop < len(s.Authorities) && !now.Before(s.Authorities[plan.Drop].Certificate.NotAfter) {
		plan.Drop++
	}
	left := s.Authorities[plan.Drop:]
	switch {
	case len(left) == 0:
		plan.AddAuthority = Missing
	case isAged(left[len(left)-1].Certificate, now):
		plan.AddAuthority = Aged
	}
	plan.Reissue = reissueReason(s.Serving, left, now, hosts, policy)
	return plan
}

// reissueReason is why the serving certificate must be made anew.
func reissueReason(serving *Pair, authorities []Pair, now time.Time, hosts []string, policy Policy) Reason {
	switch {
	case serving == nil:
		return Missing
	case len(authorities) == 0:
		return AuthorityExpired
	case isAged(serving.Certificate, now):
		return Aged
	case !coversHosts(serving.Certificate, hosts):
		return HostsChanged
	case serving.Certificate.CheckSignatureFrom(signer(authorities, now, policy).Certificate) != nil:
		return SignerChanged
	}
	return NotDue
}

// signer returns the newest authority that has been trusted for the handover time. If
// there is none, it returns the oldest, which clients have known for longest. authorities
// must not be empty.
func signer(authorities []Pair, now time.Time, policy Policy) Pair {
	for _, a := range slices.Backward(authorities) {
		made := a.Certificate.NotBefore.Add(policy.Skew)
		if !now.Before(made.Add(policy.Handover)) {
			return a
		}
	}
	return authorities[0]
}

// isAged reports that a certificate is past two thirds of its life.
func isAged(c *x509.Certificate, now time.Time) bool {
	life := c.NotAfter.Sub(c.NotBefore)
	return !now.Before(c.NotBefore.Add(life / 3 * 2))
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
