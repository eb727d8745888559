// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/laboratory/frameworks"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing/wire"
)

// Two simulated nodes have four cards each, and one of them caches the Dataset. Pods of other
// suites keep off.
const (
	onlyFluid             = "deviceshare.test/fluid"
	fluidCards, fluidMiB  = 4, 80 << 10
	nodeCached, nodeOther = "fluid-cached", "fluid-other"
)

// testFluid has Fluid's webhook send pods to a cache against each policy. As the table of
// docs/placement.md says, a cache outweighs 20 percent of a node. It always wins where the
// configuration says so, and where the pod requires it.
func testFluid(t *testing.T, w *world) {
	dataset := types.NamespacedName{Namespace: "fluid", Name: "images"}
	w.simulateNodes(t, fluidNode(t, nodeCached, "GPU-f10d0000", frameworks.FluidNodeLabels(dataset)), fluidNode(t, nodeOther, "GPU-f10d1000", map[string]string{}))
	ctx, u := w.user(t, dataset.Namespace, 10*time.Minute)
	w.registerFluidDriver(ctx, t, nodeCached, nodeOther)
	w.mountDataset(ctx, t, dataset)
	f := &fluidPods{user: u, dataset: dataset}
	installed := map[string]map[string]string{ // by what is filled, then policy: which node wins against the cache
		nodeOther + " 10":  {},
		nodeOther + " 50":  {"binpack": nodeOther},
		nodeCached + " 50": {"spread": nodeOther},
	}
	for filled, others := range installed {
		f.expect(ctx, t, filled, others)
	}
	w.preferCaches(ctx, t, f)
	for filled := range installed {
		f.expect(ctx, t, filled, nil)
	}
}

// fluidNode is a simulated node.
func fluidNode(t *testing.T, name, uuid string, labels map[string]string) *corev1.Node {
	t.Helper()
	return nodeWithCards(t, simulatedCards(name, uuid, "NVIDIA A100-SXM4-80GB", fluidCards, fluidMiB), onlyFluid, labels, corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi"),
	})
}

// registerFluidDriver says of simulated nodes what a kubelet does with which Fluid's driver has
// registered. Without it Volcano counts a volume of the driver as one more than there is.
func (w *world) registerFluidDriver(ctx context.Context, t *testing.T, names ...string) {
	t.Helper()
	nodes := w.cluster.Client().StorageV1().CSINodes()
	for _, name := range names {
		n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: frameworks.FluidDriver, NodeID: name}},
		}}
		if _, err := nodes.Create(ctx, n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := nodes.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
	}
}

// mountDataset makes the volume and the claim of a Dataset, and waits until they are bound.
func (w *world) mountDataset(ctx context.Context, t *testing.T, dataset types.NamespacedName) {
	t.Helper()
	core := w.cluster.Client().CoreV1()
	volume, claim := frameworks.FluidVolume(dataset)
	if _, err := core.PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := core.PersistentVolumes().Delete(context.Background(), volume.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	if _, err := core.PersistentVolumeClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := core.PersistentVolumeClaims(claim.Namespace).Delete(context.Background(), claim.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	askUntil(ctx, t, "the claim of the Dataset to be bound", func() (bool, error) {
		now, err := core.PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		return err == nil && now.Status.Phase == corev1.ClaimBound, err
	})
}

// fluidPods makes pods that mount a Dataset.
type fluidPods struct {
	user    *user.User
	dataset types.NamespacedName
	made    int
}

// new is the pod of the manifest as Fluid's webhook makes it, with a policy.
func (f *fluidPods) new(t *testing.T, policy string, required bool) *corev1.Pod {
	t.Helper()
	f.made++
	var p corev1.Pod
	for _, o := range manifest(t, "fluid") {
		if o.GetKind() == "Pod" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &p); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.Name, p.Annotations = fmt.Sprintf("%s-%d", p.Name, f.made), map[string]string{wire.UserPolicy: policy}
	if required {
		p.Labels[frameworks.FluidRequires(f.dataset)] = "required"
	}
	frameworks.PreferFluidCache(&p, f.dataset)
	return staysWithFluid(&p)
}

// staysWithFluid lets a pod on the simulated nodes only.
func staysWithFluid(p *corev1.Pod) *corev1.Pod {
	if p.Spec.NodeSelector == nil {
		p.Spec.NodeSelector = map[string]string{}
	}
	p.Spec.NodeSelector[onlyFluid] = "true"
	p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: onlyFluid, Operator: corev1.TolerationOpExists})
	return p
}

// expect fills a node, given as its name and a percentage, and expects that a pod of each policy
// goes to the node with the cache, or to the other one that is named.
func (f *fluidPods) expect(ctx context.Context, t *testing.T, filled string, others map[string]string) {
	t.Helper()
	fillers := f.fill(ctx, t, filled)
	for _, policy := range []string{"fragmentation", "binpack", "spread"} {
		for _, required := range []bool{false, true} {
			want := nodeCached
			if other := others[policy]; other != "" && !required {
				want = other
			}
			if got := f.place(ctx, t, policy, required); got != want {
				t.Errorf("%s %% filled, %s, required %t: the pod is on %s, want %s", filled, policy, required, got, want)
			}
		}
	}
	if err := f.user.Delete(ctx, fillers...); err != nil {
		t.Fatal(err)
	}
}

// place returns the node that a pod gets.
func (f *fluidPods) place(ctx context.Context, t *testing.T, policy string, required bool) string {
	t.Helper()
	p := f.new(t, policy, required)
	running(ctx, t, f.user, p)
	now, err := f.user.Get(ctx, p.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.user.Delete(ctx, p.Name); err != nil {
		t.Fatal(err)
	}
	return now.Spec.NodeName
}

// fill starts pods that take so many percent of all cards of a node, and returns their names.
func (f *fluidPods) fill(ctx context.Context, t *testing.T, filled string) []string {
	t.Helper()
	var node string
	var percent, left int64
	if _, err := fmt.Sscan(filled, &node, &percent); err != nil {
		t.Fatal(err)
	}
	var names []string
	for left = percent * fluidCards; left > 0; left -= 100 {
		f.made++
		part := min(left, 100)
		p := pod(fmt.Sprint("filler-", f.made)).App("main", workload.Ask{Number: 1, Memory: fluidMiB * part / 100, Cores: part}, "forever").Build()
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		running(ctx, t, f.user, staysWithFluid(p))
		names = append(names, p.Name)
	}
	return names
}

// preferCaches gives node affinity the weight of docs/placement.md that puts caches first, and
// waits until it is in force.
func (w *world) preferCaches(ctx context.Context, t *testing.T, f *fluidPods) {
	t.Helper()
	w.addOption(ctx, t, "leastrequested.weight: 0", "nodeaffinity.weight: 20")
	w.hurryConfig(ctx, t)
	fillers := f.fill(ctx, t, nodeOther+" 50")
	askUntil(ctx, t, "the weight of node affinity to be in force", func() (bool, error) {
		return f.place(ctx, t, "binpack", false) == nodeCached, nil
	})
	if err := f.user.Delete(ctx, fillers...); err != nil {
		t.Fatal(err)
	}
}
