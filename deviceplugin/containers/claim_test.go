// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/deviceplugin/settings"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// inventoryOf has three devices whose PCI order is 2, 0, 1.
func inventoryOf() sharing.Inventory {
	device := func(index int, pci string) sharing.Device {
		return sharing.Device{
			ID: sharing.DeviceID(fmt.Sprintf("GPU-%d", index)), Index: index, PCI: pci, Model: "NVIDIA A30", Memory: 24 * sharing.GiB,
			Cores: 100, MaxShares: 10, Healthy: true, Mode: sharing.HAMiCore, NUMA: -1,
		}
	}
	return sharing.Inventory{Node: "n", GeometryHash: "now", Devices: []sharing.Device{
		device(0, "0000:0f:00.0"), device(1, "0000:47:00.0"), device(2, "0000:07:00.0"),
	}}
}

func shareOf(index int, mib int64) sharing.Share {
	return sharing.Share{Device: sharing.DeviceID(fmt.Sprintf("GPU-%d", index)), Mode: sharing.HAMiCore, Memory: sharing.MiBs(mib)}
}

// podOf has a container without devices before the one that has shares.
func podOf(t *testing.T, annotate func(sharing.Placement) (map[string]string, error), shares ...sharing.Share) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid"}}
	limits := corev1.ResourceList{wire.ResourceNumber: *resource.NewQuantity(int64(len(shares)), resource.DecimalSI)}
	pod.Spec.Containers = []corev1.Container{{Name: "plain"}, {Name: "main", Resources: corev1.ResourceRequirements{Limits: limits}}}
	var err error
	pod.Annotations, err = annotate(sharing.Placement{
		Node: "n", GeometryHash: "before", Containers: []sharing.ContainerShares{{Container: "main", Shares: shares}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// ourScheduler gives the annotations of our scheduler, legacyScheduler those of Volcano's.
func ourScheduler(p sharing.Placement) (map[string]string, error) {
	return wire.PlacementAnnotations(p, 1, 1)
}

func legacyScheduler(p sharing.Placement) (map[string]string, error) {
	all, err := wire.PlacementAnnotations(p, 1, 1)
	delete(all, wire.PodPlacement)
	return all, err
}

func slotsOf(n int) []string { return []string{"a", "b", "c"}[:n] }

func terms() settings.Terms {
	return settings.Terms{Names: podspec.DefaultNames(), Factor: 1, PriorityName: "example.com/priority"}
}

// fixed are terms that nobody edits.
type fixed settings.Terms

func (f fixed) Terms() settings.Terms { return settings.Terms(f) }

// number is the resource of these tests.
type number struct{}

func (number) ResourceName() string { return wire.ResourceNumber }

// managerOn is a manager that knows devices, two modes, and nothing else. A device
// works if the only reason against it is the way into its mode.
func managerOn(t *testing.T, inv *sharing.Inventory) *Manager {
	t.Helper()
	store, _, err := checkpoint.Open(host.OS{}, filepath.Join(t.TempDir(), "checkpoint.json"))
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Node: nodeLike{inv}, Devices: &agent.KeyedLock{}, Terms: fixed(terms()), Store: store, Resource: number{}, Pods: nobody{}, Wait: 5 * time.Minute, Observer: unobserved{},
		Preparers: []modes.Preparer{serves{sharing.HAMiCore}, serves{sharing.MIG}},
	})
}

// nodeLike is a node whose state is that of an inventory, which tests edit.
type nodeLike struct{ inv *sharing.Inventory }

// Offer implements node.Offers.
func (n nodeLike) Offer(f *node.Facts) node.Offer {
	d, _ := n.inv.Device(f.UUID)
	return node.Offer{Mode: d.Mode, MemoryScaling: 1, CoreScaling: 1, MaxShares: d.MaxShares}
}

// State implements Node. A device works if the only reason against it is the way into
// its mode.
func (n nodeLike) State() node.State {
	s := node.New(node.Config{Node: n.inv.Node, Powers: node.Powers{Switches: true, Switched: []sharing.Mode{sharing.MIG, sharing.MPS}}})
	s = node.Reduce(s, node.Configured{Settings: node.Settings{Offers: n, GeometryHash: n.inv.GeometryHash}})
	var found []node.Facts
	for _, d := range n.inv.Devices {
		found = append(found, node.Facts{
			UUID: d.ID, Index: d.Index, PCI: d.PCI, Model: d.Model, Memory: d.Memory, NUMA: d.NUMA, MIG: node.MIG{Capable: true},
		})
	}
	s = node.Reduce(s, node.Scanned{Devices: found})
	for _, d := range n.inv.Devices {
		switch {
		case d.Healthy:
			s = node.Reduce(s, node.Looked{Device: d.ID, Holders: []node.Holder{{Mode: d.Mode}}})
		case d.Reason == "" || strings.HasPrefix(d.Reason, "XID"):
			s = node.Reduce(s, node.Silent{Device: d.ID, Why: d.Reason})
		default:
			s = node.Reduce(s, node.ChangeFailed{Device: d.ID, Mode: d.Mode, Why: d.Reason})
		}
	}
	return s
}

// serves is a preparer of a mode that is never asked.
type serves struct{ mode sharing.Mode }

func (s serves) Mode() sharing.Mode { return s.mode }

func (serves) Prepare(context.Context, modes.Claim) (modes.Injection, error) {
	return modes.Injection{}, errors.New("not asked")
}

func (serves) Unprepare(context.Context, sharing.Owner) error { return nil }

func mainContainer() kubelet.Container { return kubelet.Container{Name: "main", ID: "id"} }

func TestDevicesAreClaimedInPCIOrderWithTheirOwnShares(t *testing.T) {
	for name, annotate := range map[string]func(sharing.Placement) (map[string]string, error){"our scheduler": ourScheduler, "the legacy scheduler": legacyScheduler} {
		t.Run(name, func(t *testing.T) {
			inv := inventoryOf()
			pod := podOf(t, annotate, shareOf(1, 1000), shareOf(2, 2000), shareOf(0, 3000))
			c, err := managerOn(t, &inv).admitContainer(t.Context(), pod, mainContainer(), slotsOf(3))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range c.Devices {
				got = append(got, fmt.Sprintf("%s=%v", d.Device.ID, d.Share.Memory))
			}
			if text := strings.Join(got, " "); text != "GPU-2=2000MiB GPU-0=3000MiB GPU-1=1000MiB" {
				t.Errorf("claimed %s", text)
			}
			if c.Owner != "uid" || c.ID != "id" || c.Priority != 1 {
				t.Errorf("the claim is %+v", c)
			}
		})
	}
}

func TestClaimsThatDoNotAgreeWithTheNodeAreRefused(t *testing.T) {
	cases := map[string]struct {
		spoil func(*sharing.Inventory)
		share sharing.Share
		want  string
	}{
		"a device of another node": {func(*sharing.Inventory) {}, shareOf(7, 1), "GPU-7 is not on this node"},
		"a broken device":          {func(i *sharing.Inventory) { i.Devices[0].Healthy = false }, shareOf(0, 1), "is broken"},
		"another node's decision":  {func(i *sharing.Inventory) { i.Node = "m" }, shareOf(0, 1), `"n"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inv := inventoryOf()
			pod := podOf(t, ourScheduler, tc.share)
			tc.spoil(&inv)
			_, err := managerOn(t, &inv).admitContainer(t.Context(), pod, mainContainer(), slotsOf(1))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestThePriorityOfAContainerIsItsResource(t *testing.T) {
	for text, want := range map[string]int{"": 1, "0": 0, "1": 1, "5": 1} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
		if text != "" {
			pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/priority": resource.MustParse(text)}
		}
		if got := taskPriority(pod, "main", "example.com/priority"); got != want {
			t.Errorf("priority %q is %d, want %d", text, got, want)
		}
	}
}

func TestAPodWithoutOurResourcesHasNoRequestingContainers(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}},
		Containers:     []corev1.Container{{Name: "c"}},
	}}
	want := []wire.ContainerRef{{Name: "i", Kind: sharing.Init}, {Name: "s", Kind: sharing.Sidecar}, {Name: "c"}}
	got := containerRefs(pod, podspec.DefaultNames())
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTheUserOfAContainerIsItsOwnThenItsPods(t *testing.T) {
	id := func(n int64) *int64 { return &n }
	cases := map[string]struct {
		pod  *corev1.PodSecurityContext
		main *corev1.SecurityContext
		want string
	}{
		"nothing is said":      {nil, nil, "image"},
		"the pod's":            {&corev1.PodSecurityContext{RunAsUser: id(1000)}, nil, "1000"},
		"its own":              {&corev1.PodSecurityContext{RunAsUser: id(1000)}, &corev1.SecurityContext{RunAsUser: id(0)}, "0"},
		"its own says no user": {&corev1.PodSecurityContext{RunAsUser: id(1000)}, &corev1.SecurityContext{}, "1000"},
		"the pod says no user": {&corev1.PodSecurityContext{}, &corev1.SecurityContext{}, "image"},
	}
	for name, c := range cases {
		pod := &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: c.pod, Containers: []corev1.Container{{Name: "other"}, {Name: "main", SecurityContext: c.main}}}}
		got := "image"
		if u := containerUser(pod, "main"); u != nil {
			got = fmt.Sprint(*u)
		}
		if got != c.want {
			t.Errorf("%s: user %s, want %s", name, got, c.want)
		}
	}
}

// The node checks a placement against the part of each device, as the scheduler read it.
func TestATotalIsReadAsThePartOfEachDevice(t *testing.T) {
	limits := corev1.ResourceList{}
	for name, amount := range map[string]string{wire.ResourceNumber: "3", wire.ResourceMemory: "10000", wire.ResourceCores: "100"} {
		limits[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits}}}}}
	pod.Annotations = map[string]string{wire.UserSplit: wire.SplitEven}
	got := readRequests(pod, settings.Terms{Names: podspec.DefaultNames(), Factor: 1})
	if len(got) != 1 || got[0].Memory != sharing.AbsoluteMemory(sharing.MiBs(3333)) || got[0].Cores != 33 {
		t.Errorf("got %+v, want 3333 MiB and 33%% of each", got)
	}
}

// Annotations can be written to a pod that exists. A mistake in one does not take away what its
// containers ask for, against which the node checks what they are given.
func TestAWrongAnnotationDoesNotHideWhatIsAsked(t *testing.T) {
	limits := corev1.ResourceList{wire.ResourceNumber: resource.MustParse("1"), wire.ResourceMemory: resource.MustParse("1000"), wire.ResourceCores: resource.MustParse("20")}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits}}}}}
	for _, key := range wire.UserKeys() {
		pod.Annotations = map[string]string{key: "!?,,"}
		got := readRequests(pod, settings.Terms{Names: podspec.DefaultNames(), Factor: 1})
		if len(got) != 1 || got[0].Memory != sharing.AbsoluteMemory(sharing.MiBs(1000)) || got[0].Cores != 20 {
			t.Errorf("with a wrong %s: got %+v", key, got)
		}
	}
}
