// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/config/signing"
	"deviceshare/deviceplugin/host"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// vouched is a key of which the tests need no cryptography: it vouches for what is in the list.
type vouched map[wire.Signed]string

func (v vouched) Require(signature string, what wire.Signed) error {
	if want, ok := v[what]; ok && want == signature {
		return nil
	}
	return &signing.Unsigned{Why: "nobody vouches for it"}
}

// signed writes a signature on a pod for which the key then vouches.
func (v vouched) signed(b *bench, name, signature string, asks ...ask) (owner sharing.Owner) {
	b.t.Helper()
	pod := b.pod(name, asks...)
	v[wire.Signed{Owner: sharing.Owner(pod.UID), Node: node, Placement: pod.Annotations[wire.PodPlacement]}] = signature
	pod.Annotations[wire.PodSignature] = signature
	_, err := b.api.CoreV1().Pods(pod.Namespace).Update(context.Background(), pod, metav1.UpdateOptions{})
	must(b.t, err)
	b.await("the pod's signature", func() bool {
		p, ok := b.pods.Pod(sharing.Owner(pod.UID))
		return ok && p.Annotations[wire.PodSignature] == signature
	})
	return sharing.Owner(pod.UID)
}

func TestAContainerStartsOnlyWithAPlacementThatASchedulerVouchesFor(t *testing.T) {
	b := newBench(t)
	keys := vouched{}
	b.signatures = keys
	b.restart(host.OS{})

	first, _ := b.pods.Pod(keys.signed(b, "first", "of first", ask{name: "main", devices: []int{0}, mib: 1000}))
	must(t, b.kubelet.Admit(first))
	if _, err := b.begin(first, "main"); err != nil {
		t.Errorf("a placement that is vouched for: %v", err)
	}

	unsigned := b.pod("unsigned", ask{name: "main", devices: []int{0}, mib: 1000})
	must(t, b.kubelet.Admit(unsigned))
	_, err := b.begin(unsigned, "main")
	if err == nil || !strings.Contains(err.Error(), "not signed by a scheduler: nobody vouches for it") {
		t.Errorf("a placement without a signature: %v", err)
	}
	if len(b.store.Of(sharing.Owner(unsigned.UID))) != 0 {
		t.Error("the refused container is recorded")
	}
}

// The pod began before placements were signed, or its key was taken away since.
func TestAContainerThatBeganNeedsNoSignatureWhenItStartsAgain(t *testing.T) {
	b := newBench(t)
	pod := b.pod("p", ask{name: "main", devices: []int{0}, mib: 1000}, ask{name: "other", devices: []int{1}, mib: 1000})
	must(t, b.kubelet.Admit(pod))
	_, err := b.begin(pod, "main")
	must(t, err)
	b.signatures = vouched{}
	b.restart(host.OS{})
	if _, err := b.begin(pod, "main"); err != nil {
		t.Errorf("the container that began is refused: %v", err)
	}
	if _, err := b.begin(pod, "other"); err == nil {
		t.Error("a container that never began starts without a signature")
	}
}

// noKeys are keys that cannot be read.
type noKeys struct{}

func (noKeys) Require(string, wire.Signed) error { return errors.New("no such directory") }

func TestKeysThatCannotBeReadStartNothing(t *testing.T) {
	b := newBench(t)
	b.signatures = noKeys{}
	b.restart(host.OS{})
	pod := b.pod("p", ask{name: "main", devices: []int{0}, mib: 1000})
	must(t, b.kubelet.Admit(pod))
	if _, err := b.begin(pod, "main"); err == nil || !strings.Contains(err.Error(), "no such directory") {
		t.Errorf("the answer is %v", err)
	}
}
