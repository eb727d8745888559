// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// registry takes registrations.
type registry struct {
	pluginapi.UnimplementedRegistrationServer
	registered chan string
}

func (r *registry) Register(_ context.Context, q *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	r.registered <- q.GetResourceName()
	return &pluginapi.Empty{}, nil
}

// nothing offers no devices, and counts how often it is asked for its name.
type nothing struct{ asked *atomic.Int32 }

func (n nothing) ResourceName() string             { n.asked.Add(1); return "example.com/a" }
func (nothing) Devices() []*pluginapi.Device       { return nil }
func (nothing) Changes() (<-chan struct{}, func()) { return nil, func() {} }

// A kubelet that starts binds its socket, which is when its file appears, and listens
// afterwards. Who asks in between is refused, and no file appears any more.
func TestAKubeletThatDoesNotListenYetIsAskedAgainSoon(t *testing.T) {
	dir, err := os.MkdirTemp("", "early") // short, because a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: filepath.Join(dir, kubeletSocket)}); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	s := NewServer(ServerConfig{
		Directory: dir, Socket: "early.sock", Offer: nothing{&asked},
	})
	s.tick = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	for asked.Load() < 2 { // once for each attempt
		time.Sleep(time.Millisecond)
	}

	if err := syscall.Listen(fd, 16); err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "kubelet.sock")
	listener, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	kubelet, r := grpc.NewServer(), &registry{registered: make(chan string, 10)}
	pluginapi.RegisterRegistrationServer(kubelet, r)
	go func() { _ = kubelet.Serve(listener) }()
	t.Cleanup(kubelet.Stop)
	select {
	case name := <-r.registered:
		if name != "example.com/a" {
			t.Errorf("it registered %s", name)
		}
	case <-time.After(10 * time.Minute):
		t.Fatal("it was refused once and waits for a file that is there already")
	}
}
