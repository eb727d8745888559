// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/kubelet/kubelettest"
	"deviceshare/sharing"
)

type resource string

func (r resource) ResourceName() string { return string(r) }

type records []checkpoint.Record

func (r records) All() []checkpoint.Record { return r }

// serveMirror serves a socket beside a kubelet's and returns a client of it.
func serveMirror(t *testing.T, k *kubelettest.Kubelet, before func(socket string)) podresources.PodResourcesListerClient {
	t.Helper()
	socket := kubelet.Directory(k.Directory).TruePodResources()
	before(socket)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- Run(ctx, Config{Socket: socket, Kubelet: k.PodResources(), Resource: resource(ours), Records: records(nil), Devices: func() []sharing.Device { return nil }})
	}()
	client, conn, err := kubelet.DialLister(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return client
}

func TestAMirrorAnswersAtItsSocketWhateverWasThereBefore(t *testing.T) {
	k := kubelettest.Start(t)
	client := serveMirror(t, k, func(socket string) {
		if err := os.WriteFile(socket, []byte("left behind"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	// Whoever waits for a connection is told as soon as there is one.
	if _, err := client.List(t.Context(), &podresources.ListPodResourcesRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.GetAllocatableResources(t.Context(), &podresources.AllocatableResourcesRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := client.Get(t.Context(), &podresources.GetPodResourcesRequest{PodNamespace: "ns", PodName: "none"}); status.Code(err) == codes.OK {
		t.Error("a pod that the kubelet does not know has resources")
	}
	info, err := os.Stat(filepath.Join(k.Directory, "pod-resources", "deviceshare.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others than root may ask: %v, %v", info, err)
	}
	start := k.Stop(t)
	if _, err := client.List(t.Context(), &podresources.ListPodResourcesRequest{}); err == nil {
		t.Error("something is answered without the kubelet")
	}
	start()
	// The mirror passes on that the kubelet is not there, so it has to be asked again.
	for deadline := time.Now().Add(10 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err = client.List(t.Context(), &podresources.ListPodResourcesRequest{}); err == nil {
			return
		}
	}
	t.Errorf("nothing is answered after the kubelet's restart: %v", err)
}
