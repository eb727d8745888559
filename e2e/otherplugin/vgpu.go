// SPDX-License-Identifier: Apache-2.0

package otherplugin

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Annotations of nodes, as Volcano's existing device plugin v1.12 writes them.
const (
	nodeRegister  = "volcano.sh/node-vgpu-register"
	nodeHandshake = "volcano.sh/node-vgpu-handshake"
)

// reportEvery is how often the plugin writes its node's annotations.
const reportEvery = 30 * time.Second

// VGPUConfig is what a VGPU works with. All fields are needed.
type VGPUConfig struct {
	Client  kubernetes.Interface
	Node    string
	Devices []Device
	// Split is how many containers may share a device; Factor is the MiB per unit of memory.
	Split, Factor int64
	// KubeletDir is the node's /var/lib/kubelet, and HookDir its /usr/local/vgpu, as this process
	// sees them. The latter holds libvgpu.so and ld.so.preload.
	KubeletDir, HookDir string
	Runtime             Runtime
}

// VGPU is Volcano's existing vGPU device plugin on one node.
type VGPU struct {
	cfg     VGPUConfig
	servers []*server
	cancel  context.CancelFunc
	done    chan struct{}
	// one allocation at a time, as the kubelet asks
	mu sync.Mutex
}

// StartVGPU offers the devices as three resources, one kubelet device per sharer, per unit of
// memory and per percent of compute, and reports them in the node's annotations until Stop.
func StartVGPU(ctx context.Context, cfg VGPUConfig) (*VGPU, error) {
	v := &VGPU{cfg: cfg, done: make(chan struct{})}
	directory := filepath.Join(cfg.KubeletDir, "device-plugins")
	for _, r := range []struct {
		socket, resource, infix string
		count                   func(Device) int64
		answers                 allocator
	}{
		{"vgpu-n.sock", "volcano.sh/vgpu-number", "-", func(Device) int64 { return cfg.Split }, v},
		{"vgpu-m.sock", "volcano.sh/vgpu-memory", "-memory-", func(d Device) int64 { return d.MemoryMiB / cfg.Factor }, nil},
		{"vgpu-c.sock", "volcano.sh/vgpu-cores", "-core-", func(Device) int64 { return 100 }, nil},
	} {
		s, err := serve(ctx, directory, r.socket, r.resource, v.units(r.infix, r.count), r.answers)
		if err != nil {
			v.stopServers()
			return nil, fmt.Errorf("start the vGPU plugin of node %s: %w", cfg.Node, err)
		}
		v.servers = append(v.servers, s)
	}
	if err := v.Report(ctx); err != nil {
		v.stopServers()
		return nil, err
	}
	ctx, v.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go v.run(ctx)
	return v, nil
}

// Stop ends the plugin as the end of its process does: what it wrote on the node stays.
func (v *VGPU) Stop() {
	v.cancel()
	<-v.done
	v.stopServers()
}

func (v *VGPU) stopServers() {
	for _, s := range v.servers {
		s.stop()
	}
}

// units are the kubelet devices of one resource.
func (v *VGPU) units(infix string, count func(Device) int64) []*pluginapi.Device {
	var out []*pluginapi.Device
	for _, d := range v.cfg.Devices {
		for i := range count(d) {
			out = append(out, &pluginapi.Device{ID: fmt.Sprintf("%s%s%d", d.UUID, infix, i), Health: pluginapi.Healthy})
		}
	}
	return out
}

// run reports again and again. An API server that is away for a while is no error.
func (v *VGPU) run(ctx context.Context) {
	defer close(v.done)
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = v.Report(ctx)
		}
	}
}

// Report writes the devices and the sign of life, as it is done every 30 s.
func (v *VGPU) Report(ctx context.Context) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		nodeRegister: v.register(), nodeHandshake: "Reported " + time.Now().String(),
	}}})
	if err != nil {
		return fmt.Errorf("report the devices of node %s: %w", v.cfg.Node, err)
	}
	if _, err := v.cfg.Client.CoreV1().Nodes().Patch(ctx, v.cfg.Node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("report the devices of node %s: %w", v.cfg.Node, err)
	}
	return nil
}

// register is the devices as text: UUID, sharers, units of memory, type, health, mode.
func (v *VGPU) register() string {
	var b strings.Builder
	for _, d := range v.cfg.Devices {
		fmt.Fprintf(&b, "%s,%d,%d,NVIDIA-%s,true,hami-core:", d.UUID, v.cfg.Split, d.MemoryMiB/v.cfg.Factor, d.Model)
	}
	return b.String()
}
