// SPDX-License-Identifier: Apache-2.0

// Package otherdriver is a DRA driver in as few lines as one needs: for what a kubelet does with
// claims, and for claims of others beside ours. It publishes ResourceSlices if it is told to. A
// container that has one of its claims finds the devices in its environment.
package otherdriver

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	cdi "tags.cncf.io/container-device-interface/specs-go"
)

// Name is the driver in allocations, and Variable the variable that names a claim's devices.
const (
	Name     = "other.example"
	Variable = "OTHER_DEVICES"
)

// Config is where the driver works.
type Config struct {
	Client kubernetes.Interface
	Node   string
	// Kubelet is the kubelet's directory as it sees it itself, KubeletHere as this process does.
	Kubelet, KubeletHere string
	// CDI is a directory of CDI specifications that the node's containerd reads.
	CDI string
}

// Driver serves one kubelet. It is safe for concurrent use.
type Driver struct {
	cfg    Config
	helper *kubeletplugin.Helper

	mu sync.Mutex
	// prepared and unprepared are how often the kubelet asked for each claim.
	prepared, unprepared map[types.UID]int
}

// Start registers the driver with the kubelet.
func Start(ctx context.Context, cfg Config) (*Driver, error) {
	d := &Driver{cfg: cfg, prepared: map[types.UID]int{}, unprepared: map[types.UID]int{}}
	own := filepath.Join("plugins", Name)
	if err := os.MkdirAll(filepath.Join(cfg.KubeletHere, own), 0o755); err != nil {
		return nil, fmt.Errorf("start DRA driver %s: %w", Name, err)
	}
	helper, err := kubeletplugin.Start(ctx, d, kubeletplugin.DriverName(Name), kubeletplugin.NodeName(cfg.Node), kubeletplugin.KubeClient(cfg.Client),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(cfg.Kubelet, "plugins_registry")), kubeletplugin.RegistrarListener(d.listen),
		kubeletplugin.PluginDataDirectoryPath(filepath.Join(cfg.Kubelet, own)), kubeletplugin.PluginListener(d.listen))
	if err != nil {
		return nil, fmt.Errorf("start DRA driver %s: %w", Name, err)
	}
	d.helper = helper
	return d, nil
}

// Publish offers devices of the node in a ResourceSlice, until the driver stops.
func (d *Driver) Publish(ctx context.Context, devices ...string) error {
	var slice resourceslice.Slice
	for _, name := range devices {
		slice.Devices = append(slice.Devices, resourcev1.Device{Name: name})
	}
	pools := map[string]resourceslice.Pool{d.cfg.Node: {Slices: []resourceslice.Slice{slice}}}
	if err := d.helper.PublishResources(ctx, resourceslice.DriverResources{Pools: pools}); err != nil {
		return fmt.Errorf("publish devices of DRA driver %s: %w", Name, err)
	}
	return nil
}

// Stop ends it, as the end of its process does.
func (d *Driver) Stop() { d.helper.Stop() }

// listen listens at a path as the kubelet sees it.
func (d *Driver) listen(ctx context.Context, path string) (net.Listener, error) {
	here := d.cfg.KubeletHere + strings.TrimPrefix(path, d.cfg.Kubelet)
	if err := os.Remove(here); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return new(net.ListenConfig).Listen(ctx, "unix", here)
}

// Asked returns how often the kubelet asked to prepare a claim and to unprepare it.
func (d *Driver) Asked(claim types.UID) (prepared, unprepared int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.prepared[claim], d.unprepared[claim]
}

// PrepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) PrepareResourceClaims(_ context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		results[c.UID] = d.prepare(c)
		d.mu.Lock()
		d.prepared[c.UID]++
		d.mu.Unlock()
	}
	return results, nil
}

func (d *Driver) prepare(c *resourcev1.ResourceClaim) (r kubeletplugin.PrepareResult) {
	id := "claim-" + string(c.UID)
	var names []string
	for _, device := range c.Status.Allocation.Devices.Results {
		if device.Driver == Name {
			names = append(names, device.Device)
			r.Devices = append(r.Devices, kubeletplugin.Device{
				Requests: []string{device.Request}, PoolName: device.Pool, DeviceName: device.Device, CDIDeviceIDs: []string{Name + "/device=" + id}})
		}
	}
	spec, err := json.Marshal(cdi.Spec{Version: "0.6.0", Kind: Name + "/device", Devices: []cdi.Device{{
		Name: id, ContainerEdits: cdi.ContainerEdits{Env: []string{Variable + "=" + strings.Join(names, ",")}}}}})
	if err == nil {
		err = os.WriteFile(d.specOf(c.UID), spec, 0o644)
	}
	if err != nil {
		return kubeletplugin.PrepareResult{Err: fmt.Errorf("prepare claim %s/%s: %w", c.Namespace, c.Name, err)}
	}
	return r
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, c := range claims {
		err := os.Remove(d.specOf(c.UID))
		if os.IsNotExist(err) {
			err = nil
		}
		results[c.UID] = err
		d.mu.Lock()
		d.unprepared[c.UID]++
		d.mu.Unlock()
	}
	return results, nil
}

func (d *Driver) specOf(claim types.UID) string {
	return filepath.Join(d.cfg.CDI, "other-"+string(claim)+".json")
}

// HandleError implements kubeletplugin.DRAPlugin. The kubelet tells pods.
func (d *Driver) HandleError(context.Context, error, string) {}
