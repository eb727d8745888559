// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// The objects that hold the keys, as docs/signatures.md names them.
const (
	signingSecret = "deviceshare-signing-key"
	signingKeys   = "deviceshare-signing-keys"
)

// testSigned has placements signed. Whoever has the scheduler's token, and not its key, gives
// nobody a device: not with a placement of its own, and not with a signature that was made for
// another pod, another node or another placement. Keys are exchanged while pods arrive.
func testSigned(t *testing.T, w *world) {
	ctx, u := w.user(t, "signed", 5*time.Minute)
	began := pod("began").App("main", workload.Ask{Number: 1, Memory: 1000}, "alloc", "900", "expect", "ok", "forever").Build()
	if err := u.Create(ctx, began); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitRunning(ctx, "began"); err != nil {
		t.Fatal(err)
	}
	if out, err := w.cluster.Upgrade(ctx, "--set", "placements.signed=require", "--wait=legacy"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
		defer cancel()
		if out, err := w.cluster.Upgrade(ctx, "--wait=legacy"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	s := &signatures{w: w, u: u, key: w.signingKey(ctx, t)}
	first := s.arrives(ctx, t, "first")
	if first != wire.KeyIDOf(s.key.Public().(ed25519.PublicKey)) {
		t.Errorf("the placement is signed with the key %s", first)
	}
	s.forged(ctx, t)
	s.rotate(ctx, t)
	runsOn(ctx, t, u, "began")
}

// signatures tries what can be done with and without a key.
type signatures struct {
	w   *world
	u   *user.User
	key ed25519.PrivateKey
}

// signingKey reads the schedulers' key, as an administrator may.
func (w *world) signingKey(ctx context.Context, t *testing.T) ed25519.PrivateKey {
	t.Helper()
	secret, err := w.cluster.Client().CoreV1().Secrets(sandbox.Namespace).Get(ctx, signingSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(secret.Data["signing.key"])
	if block == nil {
		t.Fatal("the Secret holds no PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key.(ed25519.PrivateKey)
}

// arrives lets a pod be placed and run, and returns with which key its placement was signed.
func (s *signatures) arrives(ctx context.Context, t *testing.T, name string) wire.KeyID {
	t.Helper()
	if err := s.u.Create(ctx, pod(name).App("main", workload.Ask{Number: 1, Memory: 100}, "alloc", "50", "expect", "ok").Build()); err != nil {
		t.Fatal(err)
	}
	succeeds(ctx, t, s.u, name)
	p, err := s.u.Get(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := wire.DecodeSignature(p.Annotations[wire.PodSignature])
	if err != nil {
		t.Fatalf("pod %s: %v", name, err)
	}
	return signature.Key
}

// sign writes the signature of a key.
func (s *signatures) sign(t *testing.T, private ed25519.PrivateKey, what wire.Signed) string {
	t.Helper()
	key, ok := wire.NewSigningKey(private.Seed())
	if !ok {
		t.Fatal("not a key")
	}
	text, err := wire.EncodeSignature(key.Sign(what))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// binds creates a pod and binds it in the scheduler's name, with the placement of the pod first and
// the signature that sign makes of what a scheduler would sign.
func (s *signatures) binds(ctx context.Context, t *testing.T, name string, sign func(wire.Signed) string) {
	t.Helper()
	p := pod(name).App("main", workload.Ask{Number: 1, Memory: 100}, "alloc", "50", "expect", "ok", "forever").
		Edit(func(p *corev1.Pod) { p.Spec.SchedulerName = "by-hand" }).Build()
	if err := s.u.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	made, err := s.u.Get(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.u.Get(ctx, "first")
	if err != nil {
		t.Fatal(err)
	}
	placement := maps.Clone(first.Annotations)
	delete(placement, wire.PodSignature)
	if text := sign(wire.Signed{Owner: sharing.Owner(made.UID), Node: sandbox.NodeName, Placement: placement[wire.PodPlacement]}); text != "" {
		placement[wire.PodSignature] = text
	}
	s.w.bindWith(ctx, t, s.u.Namespace(), name, placement)
}

// refused wants that a pod does not start, and why.
func (s *signatures) refused(ctx context.Context, t *testing.T, name, why string, sign func(wire.Signed) string) {
	t.Helper()
	s.binds(ctx, t, name, sign)
	if _, err := s.u.WaitEvent(ctx, name, "DevicePlacementUnsigned", why); err != nil {
		t.Errorf("pod %s: %v", name, err)
	}
	if p, err := s.u.Get(ctx, name); err != nil || hasRun(p) {
		t.Errorf("pod %s has run: %v", name, err)
	}
	if err := s.u.Delete(ctx, name); err != nil {
		t.Fatal(err)
	}
}

// forged binds pods with what somebody has who holds the scheduler's token and not its key.
func (s *signatures) forged(ctx context.Context, t *testing.T) {
	t.Helper()
	first, err := s.u.Get(ctx, "first")
	if err != nil {
		t.Fatal(err)
	}
	_, own, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.refused(ctx, t, "unsigned", "no annotation "+wire.PodSignature, func(wire.Signed) string { return "" })
	s.refused(ctx, t, "own-key", "does not know the key", func(what wire.Signed) string { return s.sign(t, own, what) })
	const moved = "of another pod, another node or another placement"
	s.refused(ctx, t, "other-pod", moved, func(wire.Signed) string { return first.Annotations[wire.PodSignature] })
	s.refused(ctx, t, "other-node", moved, func(what wire.Signed) string {
		what.Node = "another"
		return s.sign(t, s.key, what)
	})
	s.refused(ctx, t, "older", moved, func(what wire.Signed) string {
		what.Placement = strings.Replace(what.Placement, `"cores":`, `"cores": `, 1)
		return s.sign(t, s.key, what)
	})
	s.runs(ctx, t, "genuine", s.key) // the rest of what those pods were bound with is right
}

// runs wants that a pod starts whose placement a key signed.
func (s *signatures) runs(ctx context.Context, t *testing.T, name string, key ed25519.PrivateKey) {
	t.Helper()
	s.binds(ctx, t, name, func(what wire.Signed) string { return s.sign(t, key, what) })
	if _, err := s.u.WaitRunning(ctx, name); err != nil {
		t.Error(err)
	}
	if err := s.u.Delete(ctx, name); err != nil {
		t.Fatal(err)
	}
}

// rotate exchanges the key by the steps of docs/signatures.md. Every pod that arrives then runs.
func (s *signatures) rotate(ctx context.Context, t *testing.T) {
	t.Helper()
	public, next, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.publish(ctx, t, map[string]any{"next.pem": publicKeyPEM(t, public)})
	s.arrives(ctx, t, "both-known")
	s.runs(ctx, t, "by-the-next", next)
	s.replaceKey(ctx, t, next)
	for deadline := time.Now().Add(slack * time.Minute); ; {
		if id := s.arrives(ctx, t, "arrives-"+time.Now().Format("150405.000")); id == wire.KeyIDOf(public) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the next key never signs")
		}
	}
	s.publish(ctx, t, map[string]any{"signing.pem": nil})
	s.arrives(ctx, t, "old-gone")
	s.refused(ctx, t, "by-the-old", "does not know the key", func(what wire.Signed) string { return s.sign(t, s.key, what) })
}

func publicKeyPEM(t *testing.T, key ed25519.PublicKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// publish changes the public keys, and waits until the device plugin's pod has them.
func (s *signatures) publish(ctx context.Context, t *testing.T, data map[string]any) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		t.Fatal(err)
	}
	configs := s.w.cluster.Client().CoreV1().ConfigMaps(sandbox.Namespace)
	if _, err := configs.Patch(ctx, signingKeys, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.restart(ctx, t, sandbox.DevicePlugin)
}

// replaceKey changes the private key, and has the scheduler's pod made again.
func (s *signatures) replaceKey(ctx context.Context, t *testing.T, key ed25519.PrivateKey) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{"signing.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})}})
	if err != nil {
		t.Fatal(err)
	}
	secrets := s.w.cluster.Client().CoreV1().Secrets(sandbox.Namespace)
	if _, err := secrets.Patch(ctx, signingSecret, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.restart(ctx, t, sandbox.Scheduler)
}

// restart deletes the pod of a component: the kubelet would bring a changed volume to the old one
// too, within two minutes.
func (s *signatures) restart(ctx context.Context, t *testing.T, component string) {
	t.Helper()
	old := s.w.onlyPodOf(ctx, t, component)
	s.w.deletePod(ctx, t, old)
	s.w.awaitReplaced(ctx, t, component, old)
	if err := s.w.cluster.WaitReady(ctx, component); err != nil {
		t.Fatal(err)
	}
}
