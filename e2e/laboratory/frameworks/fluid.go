// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// fluidWeight is how much Fluid's webhook prefers the nodes of a cache, as installed.
const fluidWeight = 100

// FluidDriver is the name of Fluid's CSI driver.
const FluidDriver = "fuse.csi.fluid.io"

// fluidLabel is on the nodes that cache a Dataset.
func fluidLabel(dataset types.NamespacedName) string {
	return "fluid.io/s-" + dataset.Namespace + "-" + dataset.Name
}

// FluidNodeLabels are what Fluid gives the nodes that cache a Dataset.
func FluidNodeLabels(dataset types.NamespacedName) map[string]string {
	return map[string]string{fluidLabel(dataset): "true", "fluid.io/dataset-num": "1"}
}

// FluidRequires is the label of a pod that requires a node with the Dataset, with value "required".
func FluidRequires(dataset types.NamespacedName) string {
	return "fluid.io/dataset." + dataset.Name + ".sched"
}

// FluidVolume is the volume that Fluid makes for a Dataset, and the claim by which pods mount it.
// They are bound to each other.
func FluidVolume(dataset types.NamespacedName) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	name, size := dataset.Namespace+"-"+dataset.Name, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Ti")}
	access := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fluidLabel(dataset): "true"}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: access, Capacity: size, StorageClassName: "fluid", PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: dataset.Namespace, Name: dataset.Name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: FluidDriver, VolumeHandle: name,
				VolumeAttributes: map[string]string{"fluid_path": "/runtime-mnt/alluxio/" + dataset.String() + "/alluxio-fuse", "mount_type": "fuse.alluxio-fuse"},
			}},
		},
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: dataset.Namespace, Name: dataset.Name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: access, StorageClassName: ptr.To("fluid"), VolumeName: name,
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}
	return volume, claim
}

// PreferFluidCache changes a pod that mounts a Dataset as Fluid's webhook does, if a label asks for
// that: the pod prefers the nodes that cache it, or requires one if another label says so. The
// cache is in no zone or region that the cluster knows.
func PreferFluidCache(pod *corev1.Pod, dataset types.NamespacedName) {
	if pod.Labels["fuse.serverful.fluid.io/inject"] != "true" {
		return
	}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	affinity, term := pod.Spec.Affinity.NodeAffinity, corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: fluidLabel(dataset), Operator: corev1.NodeSelectorOpIn, Values: []string{"true"}}},
	}
	if pod.Labels[FluidRequires(dataset)] == "required" {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}
		return
	}
	affinity.PreferredDuringSchedulingIgnoredDuringExecution = append(affinity.PreferredDuringSchedulingIgnoredDuringExecution,
		corev1.PreferredSchedulingTerm{Weight: fluidWeight, Preference: term})
}

// FluidFuse is the pod of Fluid's DaemonSet that mounts a Dataset on a node, and the containers of
// it are what the webhook adds to pods of nodes without that DaemonSet. It is in the Dataset's
// namespace and names no account.
func FluidFuse(dataset types.NamespacedName) *corev1.Pod {
	bidirectional, char := corev1.MountPropagationBidirectional, corev1.HostPathCharDev
	mounts := "/runtime-mnt/alluxio/" + dataset.String()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: dataset.Namespace, Name: dataset.Name + "-fuse", Labels: map[string]string{"role": "alluxio-fuse"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "alluxio-fuse", Image: "alluxio/alluxio-dev:2.9.0",
				SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "alluxio-fuse-device", MountPath: "/dev/fuse"},
					{Name: "alluxio-fuse-mount", MountPath: mounts, MountPropagation: &bidirectional},
				},
			}},
			NodeSelector: map[string]string{"fluid.io/f-" + dataset.Namespace + "-" + dataset.Name: "true"},
			Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Volumes: []corev1.Volume{
				{Name: "alluxio-fuse-device", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev/fuse", Type: &char}}},
				{Name: "alluxio-fuse-mount", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: mounts}}},
			},
		},
	}
}
