// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/e2e/otherdriver"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// testClaimsByHand asks Kubernetes, not this product, what ADR 0065 stands on: a claim whose
// allocation somebody has written, of a driver that publishes no ResourceSlices, works on the
// kubelet, after its restarts, and for pods that are bound to it later. Its part by_volcano asks
// what Volcano allocates.
func testClaimsByHand(t *testing.T, w *world) {
	ctx, u := w.user(t, "claims-by-hand", 6*time.Minute)
	h := w.handClaim(ctx, t, u, "early")
	driver := w.otherDriver(ctx, t)

	first := h.pod(ctx, t, "first")
	h.allocate(ctx, t, first)
	h.starts(ctx, t, first)
	if prepared, _ := driver.Asked(h.uid); prepared == 0 {
		t.Error("the kubelet has not asked the driver for the claim")
	}
	h.isListed(ctx, t, "first")
	h.reserveAtOnce(ctx, t)

	before, _ := driver.Asked(h.uid)
	w.kill(ctx, t, sandbox.Kubelet)
	if err := w.cluster.WaitReady(ctx, sandbox.Kubelet); err != nil {
		t.Fatal(err)
	}
	second := h.pod(ctx, t, "second")
	h.reserve(ctx, t, second)
	h.starts(ctx, t, second)
	runsOn(ctx, t, u, "first")
	h.isListed(ctx, t, "first", "second")
	after, unprepared := driver.Asked(h.uid)
	t.Logf("prepared %d times before the kubelet was killed, %d times after; unprepared %d times", before, after-before, unprepared)

	// A claim that the node has not prepared yet waits for its driver.
	driver.Stop()
	late := w.handClaim(ctx, t, u, "late")
	third := late.pod(ctx, t, "third")
	late.allocate(ctx, t, third)
	late.bind(ctx, t, third)
	if text, err := u.WaitEvent(ctx, "third", "FailedPrepareDynamicResources"); err != nil {
		t.Error(err)
	} else {
		t.Log(text)
	}
	driver = w.otherDriver(ctx, t)
	late.runs(ctx, t, "third")
	late.endsWithItsLastPod(ctx, t, driver, "third")
	h.endsWithItsLastPod(ctx, t, driver, "first", "second")
	t.Run("by_volcano", func(t *testing.T) { w.claimsByVolcano(ctx, t, u, driver) })
}

// claimsByVolcano turns on what pods with claims are told to turn on: Volcano allocates a claim of
// another driver, for a pod that has a share of ours as well.
func (w *world) claimsByVolcano(ctx context.Context, t *testing.T, u *user.User, driver *otherdriver.Driver) {
	if err := driver.Publish(ctx, handDevice); err != nil {
		t.Fatal(err)
	}
	w.handClass(ctx, t)
	h := w.handClaim(ctx, t, u, "scheduled")
	both := pod("both").App("main", workload.Ask{Number: 1, Memory: 256}, "forever").Edit(h.give).Build()
	if err := u.Create(ctx, both); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitEvent(ctx, "both", "FailedScheduling", allocateClaims); err != nil {
		t.Fatal(err)
	}
	w.addOption(ctx, t, "- name: proportion", "  arguments:", "    "+allocateClaims+": true") // of predicates, before it
	w.hurryConfig(ctx, t)
	if _, err := u.WaitRunning(ctx, "both"); err != nil {
		t.Fatal(err)
	}
	if prepared, _ := driver.Asked(h.uid); prepared == 0 {
		t.Error("the kubelet has not asked the driver for the claim")
	}
	h.endsWithItsLastPod(ctx, t, driver, "both")
}

// handClass makes the class of the claims, for the time of the test.
func (w *world) handClass(ctx context.Context, t *testing.T) {
	t.Helper()
	classes := w.cluster.Client().ResourceV1().DeviceClasses()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: handClassName}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: "device.driver == '" + otherdriver.Name + "'"}}}}}
	if _, err := classes.Create(ctx, class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := classes.Delete(context.Background(), handClassName, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// handClaim is a claim, and what is done to it by hand.
type handClaim struct {
	*world
	u    *user.User
	of   resourceclient.ResourceClaimInterface
	name string
	uid  types.UID
}

// handDevice is the device that is allocated, handClassName the class that claims name.
const (
	handDevice    = "gpu-0"
	handClassName = "by-hand.example"
)

// allocateClaims is the argument of Volcano's plugin predicates that pods with claims are told of.
const allocateClaims = "predicate.DynamicResourceAllocationEnable"

// handClaim creates a claim, whether its class is there or not.
func (w *world) handClaim(ctx context.Context, t *testing.T, u *user.User, name string) *handClaim {
	t.Helper()
	of := w.cluster.Client().ResourceV1().ResourceClaims(u.Namespace())
	c, err := of.Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceClaimSpec{
		Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: handClassName}}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &handClaim{world: w, u: u, of: of, name: name, uid: c.UID}
}

// otherDriver starts a DRA driver on the real node, until the test ends.
func (w *world) otherDriver(ctx context.Context, t *testing.T) *otherdriver.Driver {
	t.Helper()
	d, err := otherdriver.Start(context.WithoutCancel(ctx), otherdriver.Config{
		Client: w.cluster.Client(), Node: sandbox.NodeName, CDI: w.cluster.CDIDir(),
		Kubelet: "/var/lib/kubelet", KubeletHere: w.cluster.KubeletDir(sandbox.NodeName),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Stop)
	return d
}

// pod creates a pod with the claim, for a scheduler that is not there.
func (h *handClaim) pod(ctx context.Context, t *testing.T, name string) *corev1.Pod {
	t.Helper()
	p := pod(name).Plain("main", "echo has $"+otherdriver.Variable+"; exec sleep 100000").Edit(h.give).Build()
	p.Spec.SchedulerName = "nobody"
	if err := h.u.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	p, err := h.u.Get(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// give gives a pod the claim.
func (h *handClaim) give(p *corev1.Pod) {
	useClaim(p, corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &h.name})
}

// useClaim has the first container of a pod use a claim.
func useClaim(p *corev1.Pod, c corev1.PodResourceClaim) {
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{c}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: c.Name}}
}

func consumer(p *corev1.Pod) resourcev1.ResourceClaimConsumerReference {
	return resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID}
}

// allocate writes an allocation of a device that nobody has published, and the pod that has it. The
// finalizer comes first, as from a scheduler: without it the claim controller takes the pods off a
// claim, and leaves the allocation there for ever.
func (h *handClaim) allocate(ctx context.Context, t *testing.T, p *corev1.Pod) {
	t.Helper()
	c, err := h.of.Get(ctx, h.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Finalizers = append(c.Finalizers, resourcev1.Finalizer)
	if c, err = h.of.Update(ctx, c, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{consumer(p)}
	c.Status.Allocation = &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: otherdriver.Name, Pool: sandbox.NodeName, Device: handDevice}}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{sandbox.NodeName}}}}}},
	}
	if _, err := h.of.UpdateStatus(ctx, c, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// reserve adds a pod to those that have the claim, whoever else does so at the same time.
func (h *handClaim) reserve(ctx context.Context, t *testing.T, p *corev1.Pod) {
	t.Helper()
	if err := h.addConsumer(ctx, p); err != nil {
		t.Fatal(err)
	}
}

func (h *handClaim) addConsumer(ctx context.Context, p *corev1.Pod) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": h.uid}, "status": map[string]any{"reservedFor": []any{consumer(p)}}})
	if err != nil {
		return err
	}
	_, err = h.of.Patch(ctx, h.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// reserveAtOnce adds many pods at once: each is there, and those before stay.
func (h *handClaim) reserveAtOnce(ctx context.Context, t *testing.T) {
	t.Helper()
	var all errgroup.Group
	var names []string
	for i := range 20 {
		p := h.pod(ctx, t, fmt.Sprintf("at-once-%d", i))
		names = append(names, p.Name)
		all.Go(func() error { return h.addConsumer(ctx, p) })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	c, err := h.of.Get(ctx, h.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, "first") {
		if !slices.ContainsFunc(c.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.Name == name }) {
			t.Errorf("of pods that were added at once, %s is not among %v", name, c.Status.ReservedFor)
		}
	}
	if err := h.u.Delete(ctx, names...); err != nil {
		t.Fatal(err)
	}
	askUntil(ctx, t, "the claim controller to take deleted pods off the claim", func() (bool, error) {
		c, err := h.of.Get(ctx, h.name, metav1.GetOptions{})
		return err == nil && len(c.Status.ReservedFor) == 1, err
	})
}

// bind does what a scheduler does last.
func (h *handClaim) bind(ctx context.Context, t *testing.T, p *corev1.Pod) {
	t.Helper()
	b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: sandbox.NodeName}}
	if err := h.cluster.Client().CoreV1().Pods(p.Namespace).Bind(ctx, b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (h *handClaim) starts(ctx context.Context, t *testing.T, p *corev1.Pod) {
	t.Helper()
	h.bind(ctx, t, p)
	h.runs(ctx, t, p.Name)
}

// runs expects a pod to run with what the driver gives it.
func (h *handClaim) runs(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	if _, err := h.u.WaitRunning(ctx, name); err != nil {
		t.Fatal(err)
	}
	if _, err := h.u.WaitLog(ctx, name, "main", "has "+handDevice); err != nil {
		t.Fatal(err)
	}
}

// isListed expects the kubelet to list the claim's device for these pods.
func (h *handClaim) isListed(ctx context.Context, t *testing.T, pods ...string) {
	t.Helper()
	client, conn, err := kubelet.DialLister(kubelet.Directory(h.cluster.KubeletDir(sandbox.NodeName)).PodResources())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	askUntil(ctx, t, "the kubelet to list the claim", func() (bool, error) {
		list, err := client.List(ctx, &podresources.ListPodResourcesRequest{})
		if err != nil {
			return false, err
		}
		var found []string
		for _, p := range list.GetPodResources() {
			for _, c := range p.GetContainers() {
				for _, d := range c.GetDynamicResources() {
					if d.GetClaimName() == h.name && strings.Contains(fmt.Sprint(d.GetClaimResources()), handDevice) {
						found = append(found, p.GetName())
					}
				}
			}
		}
		slices.Sort(found)
		return slices.Equal(found, pods), fmt.Errorf("it lists %q, want %q", found, pods)
	})
}

// endsWithItsLastPod deletes the pods: the driver is asked to end the claim once, when the last has
// gone, and the claim controller takes the allocation back.
func (h *handClaim) endsWithItsLastPod(ctx context.Context, t *testing.T, d *otherdriver.Driver, pods ...string) {
	t.Helper()
	for _, name := range pods {
		if _, unprepared := d.Asked(h.uid); unprepared > 0 {
			t.Errorf("the claim was unprepared before %s was deleted", name)
		}
		if err := h.u.Delete(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	askUntil(ctx, t, "the claim to be free", func() (bool, error) {
		c, err := h.of.Get(ctx, h.name, metav1.GetOptions{})
		_, unprepared := d.Asked(h.uid)
		return err == nil && c.Status.Allocation == nil && len(c.Status.ReservedFor) == 0 && unprepared > 0, fmt.Errorf("unprepared %d times, %+v, %w", unprepared, c.Status, err)
	})
}
