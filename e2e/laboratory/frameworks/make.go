// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Kind is a kind of custom resource that an operator acts on.
type Kind struct {
	Group, Version, Kind, Plural string
	// Cluster is true of objects without a namespace.
	Cluster bool
}

// Kinds are the kinds of the manifests that a cluster without the operators does not know.
func Kinds() []Kind {
	return []Kind{
		{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet", Plural: "jobsets"},
		{Group: "kubeflow.org", Version: "v1", Kind: "PyTorchJob", Plural: "pytorchjobs"},
		{Group: "trainer.kubeflow.org", Version: "v1alpha1", Kind: "TrainingRuntime", Plural: "trainingruntimes"},
		{Group: "trainer.kubeflow.org", Version: "v1alpha1", Kind: "TrainJob", Plural: "trainjobs"},
		{Group: "ray.io", Version: "v1", Kind: "RayCluster", Plural: "rayclusters"},
		{Group: "argoproj.io", Version: "v1alpha1", Kind: "Workflow", Plural: "workflows"},
		{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "ResourceFlavor", Plural: "resourceflavors", Cluster: true},
		{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "ClusterQueue", Plural: "clusterqueues", Cluster: true},
		{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "LocalQueue", Plural: "localqueues"},
	}
}

// Make returns what an operator makes of an object, which must have its UID: objects in the order
// in which the operator creates them. It makes nothing of a kind that no operator here acts on, nor
// of a Workflow, which is made step by step: see Steps. The runtime of a TrainJob is among others.
func Make(o *unstructured.Unstructured, others []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	switch o.GetKind() {
	case "JobSet":
		return jobSet(o)
	case "PyTorchJob":
		return pyTorchJob(o)
	case "TrainJob":
		return trainJob(o, others)
	case "RayCluster":
		return rayCluster(o)
	}
	return nil, nil
}

// QueuesFirst reports whether the operator of an object waits until its pod group is in the queue
// before it makes a pod.
func QueuesFirst(o *unstructured.Unstructured) bool { return o.GetKind() == "PyTorchJob" }
