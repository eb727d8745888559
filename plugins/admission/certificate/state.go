// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

const (
	// life is how long a certificate is valid. It is replaced at two thirds of it.
	life = 90 * 24 * time.Hour
	// handover is how long a certificate is trusted before it is served. It must be longer than
	// the time in which every API server sees a new caBundle.
	handover = time.Hour
	// skew is how far back validity starts, for clients whose clock is behind.
	skew = time.Hour
	// mostRetired bounds how many certificates stay trusted that are served no more. Rotation
	// needs one; wrong clocks can make more.
	mostRetired = 14
)

// State is what the Secret holds. Certificates have their Leaf.
type State struct {
	// Serving is what servers mount; nil before the first run.
	Serving *tls.Certificate
	// Next is served after the handover; nil if none is due.
	Next *tls.Certificate
	// Published is since when clients trust Next at the latest; zero if that is not known.
	Published time.Time
	// Retired are trusted for servers that have not read Serving yet.
	Retired []*x509.Certificate
}

// Action is what is due.
type Action uint8

// The actions.
const (
	Keep  Action = iota // nothing
	Make                // make the next certificate
	Serve               // serve the next certificate
)

// Due decides what to do at now with the certificate of a server that is called by hosts, and why.
// Serve holds only when the certificates of s are published.
func (s State) Due(now time.Time, hosts []string) (what Action, why string) {
	unfit := requireServable(s.Serving, now, hosts)
	if requireServable(s.Next, now, hosts) == nil {
		switch {
		case unfit != nil:
			return Serve, unfit.Error()
		case !s.Published.IsZero() && now.Sub(s.Published) >= handover:
			return Serve, "every client trusts the next one"
		}
		return Keep, ""
	}
	if unfit != nil {
		return Make, unfit.Error()
	}
	if c := s.Serving.Leaf; !now.Before(partOfLife(c, 2, 3)) {
		return Make, "the certificate is past two thirds of its life"
	}
	return Keep, ""
}

// withNext returns s with a new next certificate, which nobody trusts yet.
func (s State) withNext(c *tls.Certificate) State {
	s.Next, s.Published = c, time.Time{}
	return s
}

// serveNext returns s with its next certificate served.
func (s State) serveNext() State {
	if s.Serving != nil {
		s.Retired = append(slices.Clone(s.Retired), s.Serving.Leaf)
	}
	s.Serving, s.Next, s.Published = s.Next, nil, time.Time{}
	return s
}

// withoutExpired returns s without what no server can serve any more.
func (s State) withoutExpired(now time.Time) State {
	s.Retired = slices.DeleteFunc(slices.Clone(s.Retired), func(c *x509.Certificate) bool { return !now.Before(c.NotAfter) })
	s.Retired = s.Retired[max(0, len(s.Retired)-mostRetired):]
	return s
}

// trustedCertificates returns what clients have to trust.
func (s State) trustedCertificates() []*x509.Certificate {
	out := slices.Clone(s.Retired)
	for _, c := range []*tls.Certificate{s.Serving, s.Next} {
		if c != nil {
			out = append(out, c.Leaf)
		}
	}
	return out
}

// requireServable returns why clients that trust a certificate refuse it at now, or by one of the
// names of its server. The empty name is any.
func requireServable(c *tls.Certificate, now time.Time, hosts []string) error {
	if c == nil {
		return errors.New("there is no certificate")
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(c.Leaf)
	for _, h := range hosts {
		if _, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: h, Roots: trusted, CurrentTime: now}); err != nil {
			return fmt.Errorf("clients refuse the certificate: %w", err)
		}
	}
	return nil
}

// partOfLife returns when a certificate has lived n of m parts of its life.
func partOfLife(c *x509.Certificate, n, m time.Duration) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / m * n)
}

// newCertificate makes a self-signed certificate for the DNS names of a server.
func newCertificate(now time.Time, hosts []string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// Two certificates of one name would be taken for the same by some clients.
		Subject:   pkix.Name{CommonName: "deviceshare webhook", SerialNumber: serial.Text(16)},
		DNSNames:  hosts,
		NotBefore: now.Add(-skew).UTC().Truncate(time.Second),
		NotAfter:  now.Add(life).UTC().Truncate(time.Second),
		KeyUsage:  x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate for %v: %w", hosts, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the certificate for %v: %w", hosts, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
