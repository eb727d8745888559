// SPDX-License-Identifier: Apache-2.0

package kubelettest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := k.client.Allocate(ctx, &pluginapi.AllocateRequest{
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

// Variables are those that the answer to Allocate gives a container.
func (k *Kubelet) Variables(pod *corev1.Pod, container string) (map[string]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.entries {
		if e.PodUID == string(pod.UID) && e.ContainerName == container {
			var answer pluginapi.ContainerAllocateResponse
			err := proto.Unmarshal(e.AllocResp, &answer)
			return answer.GetEnvs(), err
		}
	}
	return nil, errors.New("the container has no devices")
}

// Begin calls PreStartContainer for a container, as before each of its starts,
// and returns the CDI names the runtime is then asked to resolve.
func (k *Kubelet) Begin(ctx context.Context, pod *corev1.Pod, container string) ([]string, error) {
	k.mu.Lock()
	i := slices.IndexFunc(k.entries, func(e entry) bool { return e.PodUID == string(pod.UID) && e.ContainerName == container })
	client := k.client
	if i < 0 || client == nil {
		k.mu.Unlock()
		if i < 0 {
			return nil, errors.New("the container has no devices")
		}
		return nil, status.Error(codes.Unavailable, "CreateContainerConfigError: the plugin is not registered")
	}
	e := k.entries[i]
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
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

// BeginAgain is Begin, again for as long as nobody is registered or the connection ends under the
// call, at either end: whoever served it was killed or replaced at that moment. A kubelet tries
// such a container again after a while.
func (k *Kubelet) BeginAgain(ctx context.Context, pod *corev1.Pod, container string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		names, err := k.Begin(ctx, pod, container)
		code := status.Code(err)
		if code != codes.Unavailable && code != codes.Canceled || ctx.Err() != nil {
			return names, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
