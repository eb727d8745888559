// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority is the one certificate authority of a sandbox. It is made anew at every start and lives
// in memory; only its certificate is written down.
type authority struct {
	layout layout
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
}

// identity is one certificate: who it is for, and under which names it serves.
type identity struct {
	file   string
	user   string
	groups []string
	hosts  []string
}

// certLife is how long certificates hold; a sandbox lives for hours.
const certLife = 30 * 24 * time.Hour

func newAuthority(l layout) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	tmpl := certTemplate("deviceshare-sandbox-ca", nil)
	tmpl.IsCA, tmpl.BasicConstraintsValid = true, true
	tmpl.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	return &authority{layout: l, cert: cert, key: key}, writePEM(l.cert("ca"), "CERTIFICATE", der)
}

// issue writes the certificate and key of an identity.
func (a *authority) issue(id identity) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key of %s: %w", id.file, err)
	}
	tmpl := certTemplate(id.user, id.groups)
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	for _, h := range id.hosts {
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("make certificate of %s: %w", id.file, err)
	}
	if err := writePEM(a.layout.cert(id.file), "CERTIFICATE", der); err != nil {
		return err
	}
	return writeKey(a.layout.key(id.file), key)
}

// kubeconfig writes a kubeconfig file that carries the certificates of an issued identity.
func (a *authority) kubeconfig(path, identity, server string) error {
	ca, err := os.ReadFile(a.layout.cert("ca"))
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	cert, err := os.ReadFile(a.layout.cert(identity))
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	key, err := os.ReadFile(a.layout.key(identity))
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["sandbox"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	cfg.AuthInfos[identity] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	cfg.Contexts["sandbox"] = &clientcmdapi.Context{Cluster: "sandbox", AuthInfo: identity}
	cfg.CurrentContext = "sandbox"
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

func certTemplate(user string, groups []string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetInt64(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: user, Organization: groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(certLife),
	}
}

func writePEM(path, kind string, der []byte) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	return nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return writePEM(path, "PRIVATE KEY", der)
}

// identities are all certificates of a sandbox. Each component has a user of its own, so that the
// audit log tells them apart. The kubelet may do what a kubelet may, this project's components what
// the manifests say, the others anything: Volcano's scheduler, too, which runs here for comparison
// and comes with no manifests.
func identities(l layout, nodeIP string, o Options) []identity {
	masters := []string{"system:masters"}
	api := []string{"127.0.0.1", "localhost", newServiceAddress(l.part).address.String(), "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	out := []identity{
		{file: "apiserver", user: "kube-apiserver", hosts: api},
		{file: "apiserver-kubelet", user: "kube-apiserver-kubelet", groups: masters},
		{file: "service-accounts", user: "service-accounts"},
		{file: "admin", user: "admin", groups: masters},
		{file: ControllerManager, user: "system:kube-controller-manager", groups: masters},
		{file: DefaultScheduler, user: "system:kube-scheduler", groups: masters},
		{file: VolcanoController, user: VolcanoController, groups: masters},
		{file: Scheduler, user: User(Scheduler), groups: accountGroups()},
		{file: DevicePlugin, user: User(DevicePlugin), groups: accountGroups()},
		{file: Webhook, user: User(Webhook), groups: accountGroups(), hosts: []string{"127.0.0.1", "localhost"}},
	}
	if o.StockScheduler {
		out[slices.IndexFunc(out, func(id identity) bool { return id.file == Scheduler })].groups = masters
	}
	if nodeIP != "" {
		out = append(out, kubeletIdentity(Kubelet, NodeName, nodeIP))
	}
	for _, n := range o.Hollow {
		out = append(out, kubeletIdentity(HollowKubelet(n.Name), n.Name, nodeIP))
	}
	return out
}

// kubeletIdentity is that of a kubelet: it is a client and it serves.
func kubeletIdentity(file, node, ip string) identity {
	return identity{file: file, user: "system:node:" + node, groups: []string{"system:nodes"},
		hosts: []string{ip, node, "127.0.0.1", "localhost"}}
}

// makePKI makes the authority, every certificate and every kubeconfig.
func makePKI(l layout, server, nodeIP string, o Options) error {
	ca, err := newAuthority(l)
	if err != nil {
		return err
	}
	for _, id := range identities(l, nodeIP, o) {
		if err := ca.issue(id); err != nil {
			return err
		}
		if err := ca.kubeconfig(l.kubeconfig(id.file), id.file, server); err != nil {
			return err
		}
	}
	if err := mountCertificate(l); err != nil {
		return err
	}
	return ca.kubeconfig(l.adminKubeconfig(), "admin", server)
}

// mountCertificate puts the webhook's certificate where it finds it, as a kubelet would from a
// Secret.
func mountCertificate(l layout) error {
	for from, to := range map[string]string{l.cert(Webhook): "tls.crt", l.key(Webhook): "tls.key"} {
		text, err := os.ReadFile(from)
		if err != nil {
			return fmt.Errorf("mount the webhook's certificate: %w", err)
		}
		if err := os.WriteFile(filepath.Join(l.webhookDir(), to), text, 0o600); err != nil {
			return fmt.Errorf("mount the webhook's certificate: %w", err)
		}
	}
	return nil
}
