// SPDX-License-Identifier: Apache-2.0

// Package kubelettest is a kubelet's device manager over real sockets: it takes
// registrations, hands out slots as the real one does (init containers first,
// their slots reused by app containers), keeps the checkpoint file, answers
// podresources, and calls PreStartContainer with slots and nothing else.
package kubelettest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Kubelet is a running kubelet. Its methods are safe for concurrent use.
type Kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	podresources.UnimplementedPodResourcesListerServer

	// Directory is the kubelet's root directory.
	Directory string
	// OldKubelet answers podresources Get as kubelets before 1.34 do.
	OldKubelet bool

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at every change
	resource string
	client   pluginapi.DevicePluginClient
	conn     *grpc.ClientConn
	healthy  map[string]bool
	entries  []entry
	pods     map[string]*corev1.Pod // by UID
	server   *grpc.Server
	count    int // registrations
}

// entry is one line of the checkpoint.
type entry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     map[int64][]string
	AllocResp     []byte
}

func (e *entry) slots() []string { return e.DeviceIDs[-1] }

// Start starts a kubelet in a new directory.
func Start(t *testing.T) *Kubelet {
	t.Helper()
	// Short, because a socket's path has at most 107 bytes.
	dir, err := os.MkdirTemp("", "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	k := &Kubelet{Directory: dir, changed: make(chan struct{}), healthy: map[string]bool{}, pods: map[string]*corev1.Pod{}}
	for _, sub := range []string{"device-plugins", "pod-resources"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k.stop()
		_ = os.RemoveAll(dir)
	})
	return k
}

// Plugins is the directory of device plugins.
func (k *Kubelet) Plugins() string { return filepath.Join(k.Directory, "device-plugins") }

// Checkpoint is the path of the checkpoint.
func (k *Kubelet) Checkpoint() string {
	return filepath.Join(k.Plugins(), "kubelet_internal_checkpoint")
}

// PodResources is the socket of the podresources API.
func (k *Kubelet) PodResources() string {
	return filepath.Join(k.Directory, "pod-resources", "kubelet.sock")
}

func (k *Kubelet) listen() error {
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, k)
	podresources.RegisterPodResourcesListerServer(server, k)
	for _, path := range []string{filepath.Join(k.Plugins(), "kubelet.sock"), k.PodResources()} {
		_ = os.Remove(path)
		listener, err := net.Listen("unix", path)
		if err != nil {
			return err
		}
		go func() { _ = server.Serve(listener) }()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.server = server
	return nil
}

func (k *Kubelet) stop() {
	k.mu.Lock()
	server, conn := k.server, k.conn
	k.conn, k.client = nil, nil
	k.mu.Unlock()
	server.Stop()
	if conn != nil {
		_ = conn.Close()
	}
}

// Restart stops and starts the kubelet: sockets of plugins are removed, what was
// handed out is kept.
func (k *Kubelet) Restart(t *testing.T) {
	t.Helper()
	k.stop()
	sockets, err := filepath.Glob(filepath.Join(k.Plugins(), "*.sock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sockets {
		_ = os.Remove(s)
	}
	if err := k.listen(); err != nil {
		t.Fatal(err)
	}
}

// Register implements the registration service.
func (k *Kubelet) Register(_ context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	if r.GetVersion() != pluginapi.Version {
		return nil, fmt.Errorf("version %q is not supported", r.GetVersion())
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(k.Plugins(), r.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	client := pluginapi.NewDevicePluginClient(conn)
	stream, err := client.ListAndWatch(context.Background(), &pluginapi.Empty{})
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	k.resource, k.client, k.conn = r.GetResourceName(), client, conn
	k.count++
	k.wake()
	k.mu.Unlock()
	go k.follow(stream)
	return &pluginapi.Empty{}, nil
}

// follow takes in the plugin's devices.
func (k *Kubelet) follow(stream grpc.ServerStreamingClient[pluginapi.ListAndWatchResponse]) {
	for {
		answer, err := stream.Recv()
		if err != nil {
			return
		}
		k.mu.Lock()
		k.healthy = map[string]bool{}
		for _, d := range answer.GetDevices() {
			k.healthy[d.GetID()] = d.GetHealth() == pluginapi.Healthy
		}
		k.wake()
		k.mu.Unlock()
	}
}

// wake tells whoever awaits. The caller holds the lock.
func (k *Kubelet) wake() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// Await waits until the kubelet is as wanted.
func (k *Kubelet) Await(t *testing.T, what string, wanted func(healthy, all, registrations int) bool) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		k.mu.Lock()
		good := 0
		for _, h := range k.healthy {
			if h {
				good++
			}
		}
		ok, changed := wanted(good, len(k.healthy), k.count), k.changed
		all := len(k.healthy)
		k.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("the kubelet still waits for %s: %d of %d slots are healthy", what, good, all)
		}
	}
}

// Admit hands out slots to every container of a pod, as admission does.
func (k *Kubelet) Admit(pod *corev1.Pod) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods[string(pod.UID)] = pod
	var reusable []string
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		got, err := k.allocate(pod, c, reusable)
		if err != nil {
			return err
		}
		if c.RestartPolicy == nil {
			reusable = append(reusable, got...)
		} else {
			reusable = slices.DeleteFunc(reusable, func(s string) bool { return slices.Contains(got, s) })
		}
	}
	for i := range pod.Spec.Containers {
		got, err := k.allocate(pod, &pod.Spec.Containers[i], reusable)
		if err != nil {
			return err
		}
		reusable = slices.DeleteFunc(reusable, func(s string) bool { return slices.Contains(got, s) })
	}
	return k.save()
}

// allocate gives one container its slots. The caller holds the lock, as the real
// manager blocks everything else.
func (k *Kubelet) allocate(pod *corev1.Pod, c *corev1.Container, reusable []string) ([]string, error) {
	q, ok := c.Resources.Limits[corev1.ResourceName(k.resource)]
	if !ok || q.IsZero() {
		return nil, nil
	}
	var got []string
	slices.Sort(reusable)
	for _, s := range slices.Concat(slices.Compact(reusable), k.free()) {
		if len(got) < int(q.Value()) {
			got = append(got, s)
		}
	}
	if len(got) < int(q.Value()) || k.client == nil {
		return nil, errors.New("UnexpectedAdmissionError: not enough healthy devices")
	}
	answer, err := k.client.Allocate(context.Background(), &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: got}},
	})
	if err != nil {
		return nil, fmt.Errorf("UnexpectedAdmissionError: %w", err)
	}
	raw, err := proto.Marshal(answer.GetContainerResponses()[0])
	if err != nil {
		return nil, err
	}
	k.entries = append(k.entries, entry{
		PodUID: string(pod.UID), ContainerName: c.Name, ResourceName: k.resource,
		DeviceIDs: map[int64][]string{-1: got}, AllocResp: raw,
	})
	return got, nil
}

// free are healthy slots of nobody, in order.
func (k *Kubelet) free() []string {
	var free []string
	for id, healthy := range k.healthy {
		used := slices.ContainsFunc(k.entries, func(e entry) bool { return slices.Contains(e.slots(), id) })
		if healthy && !used {
			free = append(free, id)
		}
	}
	slices.Sort(free)
	return free
}

// save writes the checkpoint. The caller holds the lock.
func (k *Kubelet) save() error {
	text, err := json.Marshal(map[string]any{
		"Data":     map[string]any{"PodDeviceEntries": k.entries, "RegisteredDevices": map[string][]string{k.resource: {}}},
		"Checksum": 1,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(k.Checkpoint(), text, 0o600)
}

// Forget frees the slots of a pod that ended.
func (k *Kubelet) Forget(pod *corev1.Pod) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, string(pod.UID))
	k.entries = slices.DeleteFunc(k.entries, func(e entry) bool { return e.PodUID == string(pod.UID) })
	return k.save()
}

// GiveTwice records the slots of one pod's container for another pod too: the bug
// of kubernetes#136021.
func (k *Kubelet) GiveTwice(from, to *corev1.Pod) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods[string(to.UID)] = to
	for _, e := range k.entries {
		if e.PodUID == string(from.UID) {
			e.PodUID = string(to.UID)
			k.entries = append(k.entries, e)
			break
		}
	}
	return k.save()
}

// Begin calls PreStartContainer for a container, as before each of its starts,
// and returns the CDI names the runtime is then asked to resolve.
func (k *Kubelet) Begin(ctx context.Context, pod *corev1.Pod, container string) ([]string, error) {
	k.mu.Lock()
	i := slices.IndexFunc(k.entries, func(e entry) bool { return e.PodUID == string(pod.UID) && e.ContainerName == container })
	client := k.client
	if i < 0 || client == nil {
		k.mu.Unlock()
		return nil, errors.New("the container has no devices or the plugin is not registered")
	}
	e := k.entries[i]
	k.mu.Unlock()
	if _, err := client.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: e.slots()}); err != nil {
		return nil, fmt.Errorf("CreateContainerConfigError: %w", err)
	}
	var answer pluginapi.ContainerAllocateResponse
	if err := proto.Unmarshal(e.AllocResp, &answer); err != nil {
		return nil, err
	}
	var names []string
	for _, d := range answer.GetCdiDevices() {
		names = append(names, d.GetName())
	}
	return names, nil
}
