// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Renew carries out what Due decides and returns the new state; s is not
// changed. The plan it followed is returned for logs. A failure is one of the
// system's random source or of hosts that cannot stand in a certificate.
func Renew(s State, now time.Time, hosts []string, policy Policy) (State, Plan, error) {
	if len(hosts) == 0 {
		return s, Plan{}, errors.New("renew certificates: no host name to serve under")
	}
	plan := Due(s, now, hosts, policy)
	next := trustedState(s, now, policy)
	if plan.AddAuthority != NotDue {
		made, err := newAuthority(now, policy)
		if err != nil {
			return s, plan, fmt.Errorf("make an authority: %w", err)
		}
		next.Authorities = append(next.Authorities, made)
	}
	if plan.Reissue != NotDue {
		by, _ := chooseSigner(next.Authorities, now, policy)
		made, err := newServing(by, now, hosts, policy)
		if err != nil {
			return s, plan, fmt.Errorf("issue a serving certificate for %v: %w", hosts, err)
		}
		next.Serving = &made
	}
	return next, plan, nil
}

func newAuthority(now time.Time, policy Policy) (Pair, error) {
	template, err := newTemplate("deviceshare webhook CA", now.Add(-policy.Skew), now.Add(policy.AuthorityLife))
	if err != nil {
		return Pair{}, err
	}
	template.IsCA = true
	template.MaxPathLenZero = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign
	return issuePair(template, nil)
}

func newServing(authority Pair, now time.Time, hosts []string, policy Policy) (Pair, error) {
	end := now.Add(policy.ServingLife)
	if last := authority.Certificate.NotAfter; end.After(last) {
		end = last
	}
	template, err := newTemplate("deviceshare webhook", now.Add(-policy.Skew), end)
	if err != nil {
		return Pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return issuePair(template, &authority)
}

// newTemplate gives each certificate a random serial number: two authorities of
// one name with one serial would be taken for the same by some clients.
func newTemplate(name string, from, to time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, SerialNumber: serial.Text(16)},
		NotBefore:    from.UTC().Truncate(time.Second),
		NotAfter:     to.UTC().Truncate(time.Second),
	}, nil
}

// issuePair makes a key pair and signs the template with parent, or with itself.
func issuePair(template *x509.Certificate, parent *Pair) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}
	issuer, issuerKey := template, key
	if parent != nil {
		issuer, issuerKey = parent.Certificate, parent.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, &key.PublicKey, issuerKey)
	if err != nil {
		return Pair{}, fmt.Errorf("sign %q: %w", template.Subject.CommonName, err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		return Pair{}, fmt.Errorf("read back %q: %w", template.Subject.CommonName, err)
	}
	return Pair{Certificate: made, Key: key}, nil
}
