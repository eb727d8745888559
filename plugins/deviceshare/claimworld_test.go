// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	k8stesting "k8s.io/client-go/testing"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/sharing"
	"deviceshare/sharing/claimspec/coreclaim"
	"deviceshare/sharing/wire"
)

// claimWorld is a world whose scheduler allocates ResourceClaims. Its API server numbers the
// versions of claims, and refuses a write that is based on an older one, as the real one does.
func claimWorld(t testing.TB, objects ...runtime.Object) *world {
	t.Helper()
	w := newWorld(t)
	w.claims = true
	w.restart()
	w.numberClaims()
	w.create(deviceClassOf("vgpu.volcano.sh", `device.driver == "vgpu.volcano.sh"`))
	w.tierOff()
	w.schedule()
	w.eventually("the claims are known", func() bool { return w.store.requireClaims() == nil })
	w.idle = false
	w.create(objects...)
	return w
}

// numberClaims gives every write of a claim a version, in the order of the writes.
func (w *world) numberClaims() {
	claims := resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
	w.client.PrependReactor("create", "resourceclaims", func(action k8stesting.Action) (bool, runtime.Object, error) {
		object := action.(k8stesting.CreateAction).GetObject().(*resourcev1.ResourceClaim)
		object.ResourceVersion = w.nextVersion()
		return false, nil, nil
	})
	w.client.PrependReactor("patch", "resourceclaims", func(action k8stesting.Action) (bool, runtime.Object, error) {
		patch := action.(k8stesting.PatchAction)
		w.claimWrites.Lock()
		defer w.claimWrites.Unlock()
		o, err := w.client.Tracker().Get(claims, patch.GetNamespace(), patch.GetName())
		if err != nil {
			return true, nil, err
		}
		after, err := patchedClaim(o.(*resourcev1.ResourceClaim), patch)
		if w.answerClaim != nil && err == nil {
			err = w.answerClaim(after, patch.GetSubresource())
		}
		if err != nil {
			return true, nil, err
		}
		after.ResourceVersion = w.nextVersion()
		return true, after, w.client.Tracker().Update(claims, after, patch.GetNamespace())
	})
}

// patchedClaim returns a claim after a patch. A patch that names another version or UID than the
// claim has is a conflict.
func patchedClaim(before *resourcev1.ResourceClaim, patch k8stesting.PatchAction) (*resourcev1.ResourceClaim, error) {
	var named resourcev1.ResourceClaim
	if err := json.Unmarshal(patch.GetPatch(), &named); err != nil {
		return nil, err
	}
	if v := named.ResourceVersion; v != "" && v != before.ResourceVersion || named.UID != before.UID {
		return nil, apierrors.NewConflict(resourcev1.Resource("resourceclaims"), before.Name, errors.New("it was changed"))
	}
	original, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	var text []byte
	if patch.GetPatchType() == types.StrategicMergePatchType {
		text, err = strategicpatch.StrategicMergePatch(original, patch.GetPatch(), before)
	} else {
		text, err = jsonpatch.MergePatch(original, patch.GetPatch())
	}
	if err != nil {
		return nil, err
	}
	after := &resourcev1.ResourceClaim{}
	if err := json.Unmarshal(text, after); err != nil {
		return nil, err
	}
	switch {
	case after.Status.Allocation == nil && len(after.Status.ReservedFor) > 0:
		return nil, apierrors.NewInvalid(resourcev1.SchemeGroupVersion.WithKind("ResourceClaim").GroupKind(), before.Name, nil)
	case before.Status.Allocation != nil && !reflect.DeepEqual(before.Status.Allocation, after.Status.Allocation):
		return nil, apierrors.NewInvalid(resourcev1.SchemeGroupVersion.WithKind("ResourceClaim").GroupKind(), before.Name, nil)
	}
	return after, nil
}

func (w *world) nextVersion() string { return strconv.FormatInt(w.version.Add(1), 10) }

// deviceClassOf is a DeviceClass with selectors.
func deviceClassOf(name string, expressions ...string) *resourcev1.DeviceClass {
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, e := range expressions {
		class.Spec.Selectors = append(class.Spec.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: e}})
	}
	return class
}

// parametersOf are ShareParameters with these fields.
func parametersOf(fields string) resourcev1.DeviceConfiguration {
	text := `{"apiVersion":"vgpu.volcano.sh/v1","kind":"ShareParameters"`
	if fields != "" {
		text += "," + fields
	}
	return resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{
		Driver: wire.ClaimDriver, Parameters: runtime.RawExtension{Raw: []byte(text + "}")},
	}}
}

// claimOf is a claim of one request of our class.
func claimOf(name string, count int64, fields string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("claim-" + name)},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: "vgpu.volcano.sh", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
			}}},
			Config: []resourcev1.DeviceClaimConfiguration{{DeviceConfiguration: parametersOf(fields)}},
		}},
	}
}

// usingClaim is a pod with one container that uses a claim.
func usingClaim(name, group, claim string) *corev1.Pod {
	pod := podOf(name, group, asks{})
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "share", ResourceClaimName: &claim}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "share"}}
	return pod
}

// claim returns a claim as the API server has it.
func (w *world) claim(name string) *resourcev1.ResourceClaim {
	w.t.Helper()
	c, err := w.client.ResourceV1().ResourceClaims("ns").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// given returns what the status of a claim gives it.
func (w *world) given(name string) wire.ClaimPlacement {
	w.t.Helper()
	p, err := coreclaim.ReadPlacement(w.claim(name))
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// boundPods returns which of the pods are bound, once every bind call has returned.
func (w *world) boundPods(names ...string) (bound []string) {
	w.t.Helper()
	w.eventually("every bind call has returned", func() bool {
		w.cache.Mutex.Lock()
		defer w.cache.Mutex.Unlock()
		for _, j := range w.cache.Jobs {
			if len(j.TaskStatusIndex[api.Binding]) > 0 {
				return false
			}
		}
		return true
	})
	for _, name := range names {
		if _, is := w.binding(name); is {
			bound = append(bound, name)
		}
	}
	return bound
}

// deallocate does what the claim controller does when the last pod of a claim has ended.
func (w *world) deallocate(name string) {
	w.t.Helper()
	c := w.claim(name)
	c.Status.Allocation, c.Status.ReservedFor, c.ResourceVersion = nil, nil, w.nextVersion()
	if err := w.client.Tracker().Update(resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), c, "ns"); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the registry knows", func() bool {
		known := w.store.claims.Find(types.NamespacedName{Namespace: "ns", Name: name})
		return known != nil && known.Object.ResourceVersion == c.ResourceVersion
	})
}

func TestAClaimIsAllocatedFromTheLedgerJustBeforeItsPodIsBound(t *testing.T) {
	w := claimWorld(t, small(t, "n1", 1), groupOf("g", 1), claimOf("train", 1, `"memory":"4Gi","cores":30`), usingClaim("p", "g", "train"))
	w.schedule()
	if got := w.bound("p").Target.Name; got != "n1" {
		t.Fatalf("the pod is bound to %q", got)
	}
	c := w.claim("train")
	if !slices.Contains(c.Finalizers, resourcev1.Finalizer) {
		t.Errorf("finalizers %v: the claim controller never takes the allocation back", c.Finalizers)
	}
	if want := []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "uid-p"}}; !slices.Equal(c.Status.ReservedFor, want) {
		t.Errorf("reserved for %v, want %v", c.Status.ReservedFor, want)
	}
	given := w.given("train")
	s := given.Placement.Containers[0].Shares[0]
	if given.Queue != "default" || given.Placement.Node != "n1" || given.Placement.Containers[0].Container != "gpu" || s.Memory != 4*sharing.GiB || s.Cores != 30 {
		t.Errorf("given %+v", given)
	}
	results := c.Status.Allocation.Devices.Results
	if len(results) != 1 || results[0].Driver != "vgpu.volcano.sh" || results[0].Pool != "n1" || results[0].Device != "gpu-n1-0" || results[0].Request != "gpu" {
		t.Errorf("results %+v", results)
	}
	w.schedule()
	if owners := w.owners("n1"); !slices.Equal(owners, []sharing.Owner{"claim-train"}) {
		t.Errorf("the ledger has %v, want the claim alone", owners)
	}
}

func TestClaimsAndPodsFillOneDeviceToTheLastMiB(t *testing.T) {
	w := claimWorld(t, nodeOf(t, devices("n1", 1, 8000)))
	total := w.largestOn("n1")
	half := fmt.Sprintf(`"memory":"%dMi"`, total/2)
	w.create(groupOf("a", 1), groupOf("b", 1), groupOf("c", 1), groupOf("d", 1), claimOf("first", 1, half), claimOf("late", 1, `"memory":"1Mi"`),
		usingClaim("claimed", "a", "first"), podOf("counted", "b", asks{number: 1, memory: total - total/2}))
	w.schedule()
	if got := w.boundPods("claimed", "counted"); len(got) != 2 {
		t.Fatalf("bound are %v", got)
	}
	w.create(usingClaim("one-more", "c", "late"), podOf("and-another", "d", asks{number: 1, memory: 1}))
	w.schedule()
	if got := w.boundPods("one-more", "and-another"); len(got) != 0 {
		t.Errorf("%v are bound to a device that is full", got)
	}
	w.deletePod("claimed")
	w.endPod("claimed")
	w.deallocate("first")
	w.schedule()
	if got := w.boundPods("one-more", "and-another"); len(got) != 2 {
		t.Errorf("after the claim was freed, %v are bound: %s; %s", got,
			w.status.message("one-more"), w.status.message("and-another"))
	}
}

func (w *world) largestOn(node string) int64 {
	w.schedule()
	return w.store.cluster.Nodes()[node].Inventory.Devices[0].Memory.WholeMiB()
}

func TestPodsOfOneClaimGetItsDevicesOnce(t *testing.T) {
	w := claimWorld(t, small(t, "n1", 1), small(t, "n2", 1), groupOf("g", 3), claimOf("shared", 1, `"memory":"6Gi"`),
		usingClaim("p0", "g", "shared"), usingClaim("p1", "g", "shared"), usingClaim("p2", "g", "shared"))
	w.schedule()
	if got := w.boundPods("p0", "p1", "p2"); len(got) != 3 {
		t.Fatalf("of a gang that shares a claim, %v are bound: %s", got, w.status.message("p0"))
	}
	node := w.given("shared").Placement.Node
	for _, pod := range []string{"p0", "p1", "p2"} {
		if at := w.bound(pod).Target.Name; at != node {
			t.Errorf("pod %s is on %s, the claim on %s", pod, at, node)
		}
	}
	if users := len(w.claim("shared").Status.ReservedFor); users != 3 {
		t.Errorf("the claim is reserved for %d pods", users)
	}
	w.schedule()
	if owners := w.owners(node); !slices.Equal(owners, []sharing.Owner{"claim-shared"}) {
		t.Errorf("the ledger has %v", owners)
	}
	w.create(groupOf("h", 1), usingClaim("later", "h", "shared"))
	w.schedule()
	if at := w.bound("later").Target.Name; at != node {
		t.Errorf("a later pod of the claim is on %s", at)
	}
}

func TestAGangWhoseClaimsDoNotAllFitWritesNothing(t *testing.T) {
	objects := []runtime.Object{small(t, "n1", 1), groupOf("g", 3)}
	for i := range 3 {
		claim := fmt.Sprintf("c%d", i)
		objects = append(objects, claimOf(claim, 1, ""), usingClaim(fmt.Sprintf("p%d", i), "g", claim))
	}
	w := claimWorld(t, objects...)
	w.schedule()
	if got := w.boundPods("p0", "p1", "p2"); len(got) != 0 {
		t.Fatalf("%v are bound", got)
	}
	for i := range 3 {
		if c := w.claim(fmt.Sprintf("c%d", i)); c.Status.Allocation != nil || len(c.Status.ReservedFor) > 0 {
			t.Errorf("claim %s was written: %+v", c.Name, c.Status)
		}
	}
	w.schedule()
	if owners := w.owners("n1"); len(owners) != 0 {
		t.Errorf("the ledger has %v", owners)
	}
}

// What pods with claims are told that no node takes, as they see it.
func TestAPodIsToldWhyNoNodeTakesItsClaim(t *testing.T) {
	otherNode := claimOf("c", 1, "")
	two := claimOf("c", 1, "")
	two.Spec.Devices.Requests = append(two.Spec.Devices.Requests, *two.Spec.Devices.Requests[0].DeepCopy())
	two.Spec.Devices.Requests[1].Name = "second"
	noClass := claimOf("c", 1, "")
	noClass.Spec.Devices.Requests[0].Exactly.DeviceClassName = "nowhere"
	picky := claimOf("c", 1, "")
	picky.Spec.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
		Expression: `device.attributes["vgpu.volcano.sh"].model == "NVIDIA Other"`}}}
	broken := claimOf("c", 1, "")
	broken.Spec.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.`}}}
	mixed, both := usingClaim("p", "g", "c"), usingClaim("p", "g", "c")
	mixed.Spec.Containers[0].Resources.Limits = asks{number: 1, memory: 1000}.list()
	other := "d"
	both.Spec.ResourceClaims = append(both.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "more", ResourceClaimName: &other})
	apart := usingClaim("p", "g", "c")
	apart.Annotations[wire.UserNeighbours] = "none"
	annotated := usingClaim("p", "g", "c")
	annotated.Annotations[wire.UserMode] = "mig"
	fromTemplate := usingClaim("p", "g", "c")
	template := "t"
	fromTemplate.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "share", ResourceClaimTemplateName: &template}
	cases := map[string]struct {
		claim *resourcev1.ResourceClaim
		pod   *corev1.Pod
		want  string
	}{
		"a claim that is not there":          {nil, usingClaim("p", "g", "c"), "its ResourceClaims (spec.resourceClaims: share) do not exist yet"},
		"a template that made none yet":      {nil, fromTemplate, "its ResourceClaims (spec.resourceClaims: share) do not exist yet"},
		"a field that is not known":          {claimOf("c", 1, `"memroy":"1Gi"`), usingClaim("p", "g", "c"), "spec.devices.config[0].opaque.parameters.memroy: is not known: the fields are memory,"},
		"two requests":                       {two, usingClaim("p", "g", "c"), "2 requests: a claim of vgpu.volcano.sh has one"},
		"a class that is not there":          {noClass, usingClaim("p", "g", "c"), "there is no DeviceClass nowhere, which claim c names"},
		"more memory than any device has":    {claimOf("c", 1, `"memory":"900Gi"`), usingClaim("p", "g", "c"), "1 short of free memory (NotEnoughMemory), and it would not fit the empty node"},
		"a selector that no device meets":    {picky, usingClaim("p", "g", "c"), "(NotSelected)"},
		"a selector that does not compile":   {broken, usingClaim("p", "g", "c"), "spec.devices.requests[0].exactly.selectors: compile CEL expression"},
		"a claim and vgpu-number":            {otherNode, mixed, "it asks by volcano.sh/vgpu-number and by a claim (spec.resourceClaims: share): write one of them"},
		"a rule about neighbours":            {claimOf("c", 1, ""), apart, "rules about neighbours are not supported with claims"},
		"an annotation that nobody reads":    {claimOf("c", 1, ""), annotated, "annotation volcano.sh/vgpu-mode has no effect on a claim: write modes into its parameters"},
		"a claim of ours and one not there":  {claimOf("c", 1, ""), both, "its ResourceClaims (spec.resourceClaims: more) do not exist yet"},
		"more devices than any node has":     {claimOf("c", 9, ""), usingClaim("p", "g", "c"), `1/1 devices fit container "gpu", 9 wanted`},
		"a count that an allocation forbids": {claimOf("c", 33, ""), usingClaim("p", "g", "c"), "spec.devices.requests[0].exactly.count: 33 is outside 1 to 32"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{small(t, "n1", 1), groupOf("g", 1), tc.pod.DeepCopy()}
			if tc.claim != nil {
				objects = append(objects, tc.claim.DeepCopy())
			}
			w := claimWorld(t, objects...)
			w.schedule()
			if got := w.boundPods("p"); len(got) != 0 {
				t.Fatal("the pod is bound")
			}
			if said := w.status.message("p"); !strings.Contains(said, tc.want) {
				t.Errorf("the pod is told:\n%s\nwant:\n%s", said, tc.want)
			}
		})
	}
}
