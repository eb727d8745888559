// SPDX-License-Identifier: Apache-2.0

package coreclaim_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"deviceshare/sharing"
	"deviceshare/sharing/claimspec"
	"deviceshare/sharing/claimspec/coreclaim"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// decoded is an object of Kubernetes as a user writes it.
func decoded[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

const written = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: team, uid: uid-1}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: vgpu.volcano.sh
        selectors: [{cel: {expression: 'device.attributes["vgpu.volcano.sh"].numa == 0'}}, {}]
        capacity: {requests: {memory: 10Gi, cores: 29.5}}
    config:
    - opaque: {driver: gpu.nvidia.com, parameters: {kind: GpuConfig}}
    - requests: [gpu]
      opaque: {driver: vgpu.volcano.sh, parameters: {apiVersion: vgpu.volcano.sh/v1, kind: ShareParameters, modes: [mig]}}
    - {}
    constraints:
    - {matchAttribute: gpu.nvidia.com/numa}
`

func TestAClaimIsReadAsItIsWritten(t *testing.T) {
	got := coreclaim.Read(decoded[resourcev1.ResourceClaim](t, written))
	want := claimspec.Claim{UID: "uid-1", Namespace: "team", Name: "gpu", Constraints: 1,
		Requests: []claimspec.Request{{Name: "gpu", Class: "vgpu.volcano.sh", Count: 1,
			Selectors: []string{`device.attributes["vgpu.volcano.sh"].numa == 0`, "a selector that is not CEL"},
			Capacity:  map[string]int64{"memory": 10 << 30, "cores": 30}}},
		Configs: []claimspec.Config{
			{Path: "spec.devices.config[0]", Driver: "gpu.nvidia.com", Parameters: []byte(`{"kind":"GpuConfig"}`)},
			{Path: "spec.devices.config[1]", Driver: "vgpu.volcano.sh", Requests: []string{"gpu"},
				Parameters: []byte(`{"apiVersion":"vgpu.volcano.sh/v1","kind":"ShareParameters","modes":["mig"]}`)},
		}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestWhatTheDriverDoesNotServeIsSeen(t *testing.T) {
	yes := true
	exactly := func(e resourcev1.ExactDeviceRequest) resourcev1.DeviceRequest {
		return resourcev1.DeviceRequest{Name: "a", Exactly: &e}
	}
	for name, c := range map[string]struct {
		request resourcev1.DeviceRequest
		want    claimspec.Request
	}{
		"alternatives": {resourcev1.DeviceRequest{Name: "a", FirstAvailable: make([]resourcev1.DeviceSubRequest, 3)}, claimspec.Request{Name: "a", Alternatives: 3}},
		"neither":      {resourcev1.DeviceRequest{Name: "a"}, claimspec.Request{Name: "a"}},
		"all devices":  {exactly(resourcev1.ExactDeviceRequest{AllocationMode: resourcev1.DeviceAllocationModeAll}), claimspec.Request{Name: "a", Mode: "All"}},
		"an admin":     {exactly(resourcev1.ExactDeviceRequest{Count: 2, AdminAccess: &yes}), claimspec.Request{Name: "a", Count: 2, Admin: true}},
		"a number": {exactly(resourcev1.ExactDeviceRequest{AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 7}),
			claimspec.Request{Name: "a", Mode: "ExactCount", Count: 7}},
		"capacities without any": {exactly(resourcev1.ExactDeviceRequest{Capacity: &resourcev1.CapacityRequirements{}}), claimspec.Request{Name: "a", Count: 1}},
		"a capacity beyond int64": {exactly(resourcev1.ExactDeviceRequest{Capacity: &resourcev1.CapacityRequirements{
			Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("100E")}}}),
			claimspec.Request{Name: "a", Count: 1, Capacity: map[string]int64{"memory": 1<<63 - 1}}},
		"a capacity that wraps around to 10": {exactly(resourcev1.ExactDeviceRequest{Capacity: &resourcev1.CapacityRequirements{
			Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("-18446744073709551606"), "cores": resource.MustParse("18446744073709551626")}}}),
			claimspec.Request{Name: "a", Count: 1, Capacity: map[string]int64{"memory": -1 << 63, "cores": 1<<63 - 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{c.request}}}
			if got := coreclaim.ReadSpec(&spec).Requests; !reflect.DeepEqual(got, []claimspec.Request{c.want}) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestAClassIsReadAsItIsWritten(t *testing.T) {
	got := coreclaim.ReadClass(decoded[resourcev1.DeviceClass](t, `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu-small}
spec:
  selectors: [{cel: {expression: device.driver == "vgpu.volcano.sh"}}]
  config: [{}, {opaque: {driver: vgpu.volcano.sh, parameters: {cores: 101}}}]
`))
	want := claimspec.Class{Name: "gpu-small", Selectors: []string{`device.driver == "vgpu.volcano.sh"`}, Configs: []claimspec.Config{
		{Path: "DeviceClass gpu-small spec.config[1]", Driver: "vgpu.volcano.sh", Parameters: []byte(`{"cores":101}`)}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// allocated is a claim with devices of these drivers, and these configurations in its allocation.
func allocated(drivers []string, configs ...resourcev1.DeviceAllocationConfiguration) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "gpu"}}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Config: configs}}
	for _, d := range drivers {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourcev1.DeviceRequestAllocationResult{Request: "gpu", Driver: d, Pool: "node1", Device: "gpu-a"})
	}
	return c
}

func configuration(source resourcev1.AllocationConfigSource, driver, parameters string) resourcev1.DeviceAllocationConfiguration {
	return resourcev1.DeviceAllocationConfiguration{Source: source, DeviceConfiguration: resourcev1.DeviceConfiguration{
		Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(parameters)}}}}
}

func TestThePlacementOfAnAllocationIsFound(t *testing.T) {
	const ours, other = wire.ClaimDriver, "gpu.nvidia.com"
	want := wire.ClaimPlacement{Queue: "team-a", Placement: sharing.Placement{Node: "node1", Containers: []sharing.ContainerShares{
		{Container: "gpu", Shares: []sharing.Share{{Device: "GPU-a", Mode: sharing.HAMiCore, Memory: sharing.GiB, Cores: 30}}}}}}
	text, err := wire.EncodeClaimPlacement(want)
	if err != nil {
		t.Fatal(err)
	}
	want.Placement.Namespace = "team"
	const claim, class = resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass
	asked := configuration(class, ours, `{"apiVersion":"vgpu.volcano.sh/v1","kind":"ShareParameters"}`)
	placement := configuration(claim, ours, string(text))
	for name, c := range map[string]struct {
		claim *resourcev1.ResourceClaim
		wrong string // a part of the error
	}{
		"beside what the claim asked and another driver's":  {allocated([]string{other, ours}, asked, configuration(claim, other, string(text)), placement), ""},
		"a claim without an allocation":                     {&resourcev1.ResourceClaim{}, "not of driver"},
		"an allocation of another driver":                   {allocated([]string{other}, placement), "not of driver"},
		"an allocation that somebody else made":             {allocated([]string{ours}, asked), "read the placement of claim team/gpu: the allocation has none"},
		"two placements":                                    {allocated([]string{ours}, placement, asked, placement), "read the placement of claim team/gpu: the allocation has two"},
		"a placement for another driver":                    {allocated([]string{ours}, configuration(claim, other, string(text))), "the allocation has none"},
		"a placement that cannot be read":                   {allocated([]string{ours}, configuration(claim, ours, `{"kind":"Placement"}`)), "read the placement of claim team/gpu: claim placement: version: is missing"},
		"a configuration that is not opaque, and nothing":   {allocated([]string{ours}, resourcev1.DeviceAllocationConfiguration{}), "the allocation has none"},
		"a placement whose kind is written twice, the last": {allocated([]string{ours}, configuration(claim, ours, `{"kind":"x","kind":"Placement","version":1}`)), "is there twice"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := coreclaim.ReadPlacement(c.claim)
			if c.wrong == "" {
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.wrong) || !reflect.DeepEqual(got, wire.ClaimPlacement{}) {
				t.Errorf("got %+v, %v", got, err)
			}
			if errors.Is(err, coreclaim.ErrNotOurs) == coreclaim.HasOurDevices(c.claim) {
				t.Errorf("%v of a claim that has our devices: %v", err, coreclaim.HasOurDevices(c.claim))
			}
		})
	}
}

// The node has no lister of classes: it reads what the scheduler copied into the allocation.
func TestWhatAnAllocationTookFromClassesIsReadLikeTheClass(t *testing.T) {
	const parameters = `{"apiVersion":"vgpu.volcano.sh/v1","kind":"ShareParameters","memory":"2Gi","cores":10}`
	c := decoded[resourcev1.ResourceClaim](t, written)
	c.Spec.Devices.Constraints, c.Spec.Devices.Requests[0].Exactly.Capacity = nil, nil
	c.Status = allocated([]string{wire.ClaimDriver}, configuration(resourcev1.AllocationConfigSourceClaim, wire.ClaimDriver, "{}"),
		configuration(resourcev1.AllocationConfigSourceClass, wire.ClaimDriver, parameters)).Status
	class := coreclaim.ReadAllocatedClass(c)
	if len(class.Configs) != 1 || class.Configs[0].Path != "status.allocation.devices.config[1]" {
		t.Fatalf("got %+v", class)
	}
	claim := coreclaim.Read(c)
	got, mistakes := claimspec.Read(&claim, &class, request.Rules{})
	if len(mistakes) > 0 || got.Requests[0].Memory != sharing.AbsoluteMemory(2*sharing.GiB) || got.Requests[0].Cores != 10 || len(got.Modes) != 1 {
		t.Errorf("got %+v, %v", got, mistakes)
	}
	if none := coreclaim.ReadAllocatedClass(&resourcev1.ResourceClaim{}); len(none.Configs) > 0 {
		t.Errorf("of a claim without an allocation: %+v", none)
	}
}

func TestWhichClaimAPodMeans(t *testing.T) {
	name, made := "shared", "train-gpu-x7k2p"
	pod := &corev1.Pod{Status: corev1.PodStatus{ResourceClaimStatuses: []corev1.PodResourceClaimStatus{
		{Name: "other", ResourceClaimName: &name}, {Name: "gpu", ResourceClaimName: &made}, {Name: "none"}}}}
	for want, entry := range map[string]corev1.PodResourceClaim{
		"shared":          {Name: "gpu", ResourceClaimName: &name},
		"train-gpu-x7k2p": {Name: "gpu", ResourceClaimTemplateName: &name},
	} {
		if got := coreclaim.NameIn(pod, &entry); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, waits := range []string{"later", "none"} {
		if got := coreclaim.NameIn(pod, &corev1.PodResourceClaim{Name: waits, ResourceClaimTemplateName: &name}); got != "" {
			t.Errorf("%s: got %q", waits, got)
		}
	}
}
