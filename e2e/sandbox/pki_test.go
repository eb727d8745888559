// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
)

func madePKI(t *testing.T) layout {
	t.Helper()
	l := layout{state: t.TempDir()}
	if err := l.makeDirs(); err != nil {
		t.Fatal(err)
	}
	if err := makePKI(l, "https://127.0.0.1:1", "192.0.2.7", Options{}); err != nil {
		t.Fatal(err)
	}
	return l
}

// load reads an issued certificate and checks it against its authority.
func load(t *testing.T, l layout, name string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(l.cert(name), l.key(name))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(l.cert("ca"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("certificate of %s: %v", name, err)
	}
	return cert
}

func TestEveryCertificateVerifiesAndNamesItsComponent(t *testing.T) {
	l := madePKI(t)
	users := map[string]bool{}
	for _, id := range identities(l, "192.0.2.7", Options{}) {
		cert := load(t, l, id.file)
		if users[cert.Subject.CommonName] {
			t.Errorf("two components are the user %s: the audit log could not tell them apart", cert.Subject.CommonName)
		}
		users[cert.Subject.CommonName] = true
	}
	if !users[User(Scheduler)] || !users[User(DevicePlugin)] {
		t.Errorf("no user for the scheduler or the device plugin: %v", users)
	}
}

func TestKubeletIsANodeAndNoMaster(t *testing.T) {
	cert := load(t, madePKI(t), Kubelet)
	if cert.Subject.CommonName != "system:node:"+NodeName || !slices.Equal(cert.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("the kubelet is %v", cert.Subject)
	}
	if err := cert.VerifyHostname("192.0.2.7"); err != nil {
		t.Error(err)
	}
}

func TestOurComponentsAreTheAccountsOfTheManifests(t *testing.T) {
	l := madePKI(t)
	for _, component := range []string{Scheduler, DevicePlugin, Webhook} {
		subject := load(t, l, component).Subject
		if slices.Contains(subject.Organization, "system:masters") || !slices.Contains(subject.Organization, "system:serviceaccounts:"+Namespace) {
			t.Errorf("the %s is %v", component, subject)
		}
		account := strings.TrimPrefix(subject.CommonName, "system:serviceaccount:"+Namespace+":")
		if !slices.ContainsFunc(manifests(t), func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "ServiceAccount" && o.GetName() == account && o.GetNamespace() == Namespace
		}) {
			t.Errorf("the manifests have no account %s", account)
		}
	}
}

func TestTheWebhookIsCalledByItsAddressUnderACertificateOfTheSandbox(t *testing.T) {
	l := madePKI(t)
	pair, err := tls.LoadX509KeyPair(filepath.Join(l.webhookDir(), "tls.crt"), filepath.Join(l.webhookDir(), "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(l.cert("ca"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := objects("../../manifests/install/deviceshare.yaml", map[string]schema.GroupVersionResource{"MutatingWebhookConfiguration": {}, "ValidatingWebhookConfiguration": {}})
	if err != nil || len(all) != 2 {
		t.Fatalf("%d configurations, %v", len(all), err)
	}
	var urls []string
	for _, o := range all {
		if err := callByAddress(o, "127.0.0.1:9443", ca); err != nil {
			t.Fatal(err)
		}
		var got admissionv1.ValidatingWebhookConfiguration
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &got); err != nil {
			t.Fatal(err)
		}
		for _, hook := range got.Webhooks {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(hook.ClientConfig.CABundle)
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "127.0.0.1"}); err != nil || hook.ClientConfig.Service != nil {
				t.Errorf("%s: %v, service %v", hook.Name, err, hook.ClientConfig.Service)
			}
			urls = append(urls, *hook.ClientConfig.URL)
		}
	}
	slices.Sort(urls)
	if want := []string{"https://127.0.0.1:9443/guard", "https://127.0.0.1:9443/mutate", "https://127.0.0.1:9443/validate"}; !slices.Equal(urls, want) {
		t.Errorf("it is called at %q, want %q", urls, want)
	}
}

func TestVolcanosOwnSchedulerMayDoAnything(t *testing.T) {
	for _, id := range identities(layout{}, "192.0.2.7", Options{StockScheduler: true}) {
		if master := slices.Contains(id.groups, "system:masters"); id.file == Scheduler && !master || id.file == DevicePlugin && master {
			t.Errorf("%s: %v", id.file, id.groups)
		}
	}
}

func TestEveryRoleOfTheManifestsIsCreatedAndNothingThatRuns(t *testing.T) {
	kinds := map[string]int{}
	for _, o := range manifests(t) {
		kinds[o.GetKind()]++
	}
	if kinds["Namespace"] != 1 || kinds["ServiceAccount"] != 5 || kinds["ClusterRole"] != 6 || kinds["ClusterRoleBinding"] != 5 || // two are for people to bind
		kinds["Role"] < 2 || kinds["Role"] != kinds["RoleBinding"]+3 || len(kinds) != 6 { // and three of these
		t.Errorf("read %v", kinds)
	}
}

// manifests reads what the installation says about access.
func manifests(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	out, err := objects("../../manifests/install/deviceshare.yaml", accessKinds())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestServerCertificateHoldsForTheAddressInTheKubeconfig(t *testing.T) {
	l := madePKI(t)
	cfg, err := clientcmd.BuildConfigFromFlags("", l.adminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := load(t, l, "apiserver").VerifyHostname("127.0.0.1"); err != nil || !strings.HasPrefix(cfg.Host, "https://127.0.0.1:") {
		t.Errorf("server %s: %v", cfg.Host, err)
	}
}

func TestKeysAreForRootOnly(t *testing.T) {
	l := madePKI(t)
	for _, path := range []string{l.key("admin"), l.adminKubeconfig()} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
}

func TestHalfWrittenLastAuditLineIsLeftOut(t *testing.T) {
	text := `{"verb":"create","user":{"username":"system:serviceaccount:deviceshare-system:deviceshare-scheduler"},"objectRef":{"resource":"pods","subresource":"binding","namespace":"default","name":"a"},"responseStatus":{"code":201},"requestObject":{"kind":"Binding"}}
{"verb":"upd`
	events, err := readAudit(strings.NewReader(text))
	if err != nil || len(events) != 1 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	e := events[0]
	if e.User.Username != User(Scheduler) || e.ObjectRef.Subresource != "binding" || e.ResponseStatus.Code != 201 || len(e.RequestObject) == 0 {
		t.Errorf("got %+v", e)
	}
}

func TestBrokenAuditLineIsNamedByItsNumber(t *testing.T) {
	if _, err := readAudit(strings.NewReader("{}\nnonsense\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
}
