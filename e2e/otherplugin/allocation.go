// SPDX-License-Identifier: Apache-2.0

package otherplugin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Annotations of pods: what the scheduler decided, and what of it has not been allocated yet.
const (
	podNode       = "volcano.sh/vgpu-node"
	podTime       = "volcano.sh/vgpu-time"
	podToAllocate = "volcano.sh/devices-to-allocate"
	podPhase      = "volcano.sh/bind-phase"
)

// allocated is the time of pods that are done.
const allocated = "18446744073709551615"

// hookDir is where containers' mounts lie on the node.
const hookDir = "/usr/local/vgpu"

// GuestLibrary is where containers find the library. The real plugin has HAMi-core's at
// /usr/local/vgpu/libvgpu.so; there this repository's wants a file with limits, and follows no
// variables.
const GuestLibrary = "/usr/local/hami-core/libvgpu.so"

// grant is one device of one container as the scheduler wrote it down.
type grant struct {
	device       Device
	memory, core int64 // in units, in percent
}

// allocate finds the pod that the kubelet asks for, by guessing as the real plugin does: of the
// pods for this node with as many devices left as are asked, the one that was decided first.
func (v *VGPU) allocate(ctx context.Context, ids []string) (*pluginapi.ContainerAllocateResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	pods, err := v.cfg.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the pods: %w", err)
	}
	pod := v.oldest(pods.Items, len(ids))
	if pod == nil {
		return nil, fmt.Errorf("cannot get valid pod: none for node %s has %d devices to allocate", v.cfg.Node, len(ids))
	}
	entries := strings.Split(pod.Annotations[podToAllocate], ";")
	entry := slices.IndexFunc(entries, func(e string) bool { return e != "" })
	grants, err := v.read(entries[entry])
	if err != nil {
		return nil, fmt.Errorf("read what pod %s/%s was given: %w", pod.Namespace, pod.Name, err)
	}
	if phase := pod.Annotations[podPhase]; phase != "allocating" {
		return nil, fmt.Errorf("pod %s/%s is in phase %q, want allocating", pod.Namespace, pod.Name, phase)
	}
	answer, err := v.answer(pod, entry, grants)
	if err != nil {
		return nil, err
	}
	entries[entry] = ""
	return answer, v.confirm(ctx, pod, entries)
}

// oldest is nil where no pod fits.
func (v *VGPU) oldest(pods []corev1.Pod, devices int) *corev1.Pod {
	var best *corev1.Pod
	var first uint64
	for i := range pods {
		p := &pods[i]
		at, err := strconv.ParseUint(p.Annotations[podTime], 10, 64)
		if p.Annotations[podNode] != v.cfg.Node || err != nil || p.Annotations[podTime] == allocated ||
			strings.Count(p.Annotations[podToAllocate], ":") != devices {
			continue
		}
		if best == nil || at < first {
			best, first = p, at
		}
	}
	return best
}

// read reads the devices of one container: UUID, type, units of memory, percent of compute.
func (v *VGPU) read(entry string) ([]grant, error) {
	var out []grant
	for text := range strings.SplitSeq(strings.TrimSuffix(entry, ":"), ":") {
		f := strings.Split(text, ",")
		if len(f) != 4 || f[1] != "NVIDIA" {
			return nil, fmt.Errorf("%q is not UUID,NVIDIA,memory,cores", text)
		}
		i := slices.IndexFunc(v.cfg.Devices, func(d Device) bool { return d.UUID == f[0] })
		memory, err := strconv.ParseInt(f[2], 10, 64)
		core, wrong := strconv.ParseInt(f[3], 10, 64)
		if i < 0 || err != nil || wrong != nil {
			return nil, fmt.Errorf("%q is not about a device of node %s", text, v.cfg.Node)
		}
		out = append(out, grant{v.cfg.Devices[i], memory, core})
	}
	return out, nil
}

// answer is what a container of mode hami-core gets. The number of the entry stands for that of
// the container.
func (v *VGPU) answer(pod *corev1.Pod, entry int, grants []grant) (*pluginapi.ContainerAllocateResponse, error) {
	if entry >= len(pod.Spec.Containers) {
		return nil, fmt.Errorf("pod %s/%s has no container %d", pod.Namespace, pod.Name, entry)
	}
	own := filepath.Join("vgpu", "containers", string(pod.UID)+"_"+pod.Spec.Containers[entry].Name)
	if err := os.MkdirAll(filepath.Join(v.cfg.HookDir, own), 0o777); err != nil {
		return nil, fmt.Errorf("make the container's directory: %w", err)
	}
	if err := os.Chmod(filepath.Join(v.cfg.HookDir, own), 0o777); err != nil {
		return nil, fmt.Errorf("open the container's directory: %w", err)
	}
	out := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{
		"CUDA_DEVICE_SM_LIMIT":            strconv.FormatInt(grants[0].core, 10),
		"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/vgpu/" + string(uuid.NewUUID()) + ".cache",
	}}
	var devices []Device
	var uuids []string
	for i, g := range grants {
		out.Envs[fmt.Sprintf("CUDA_DEVICE_MEMORY_LIMIT_%d", i)] = strconv.FormatInt(g.memory*v.cfg.Factor, 10) + "m"
		devices, uuids = append(devices, g.device), append(uuids, g.device.UUID)
	}
	out.Envs["NVIDIA_VISIBLE_DEVICES"] = strings.Join(uuids, ",")
	out.Mounts = []*pluginapi.Mount{
		{ContainerPath: GuestLibrary, HostPath: hookDir + "/libvgpu.so", ReadOnly: true},
		{ContainerPath: "/etc/ld.so.preload", HostPath: hookDir + "/ld.so.preload", ReadOnly: true},
		{ContainerPath: "/tmp/vgpu", HostPath: filepath.Join(hookDir, own)},
	}
	v.cfg.Runtime.give(out, devices)
	return out, nil
}

// confirm erases what was allocated, and says so to the scheduler when nothing is left.
func (v *VGPU) confirm(ctx context.Context, pod *corev1.Pod, left []string) error {
	changes := map[string]string{podToAllocate: strings.Join(left, ";")}
	if strings.Join(left, "") == "" {
		changes = map[string]string{podToAllocate: "", podPhase: "success", podTime: allocated}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": changes}})
	if err != nil {
		return fmt.Errorf("confirm pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if _, err := v.cfg.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("confirm pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
