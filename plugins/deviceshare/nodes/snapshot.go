// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// Snapshot is the cluster at the begin of a session.
type Snapshot interface {
	// Hosts returns every node.
	Hosts() []Host
	// Host returns the node of a name, nil if there is none.
	Host(name string) Host
	// Assigned returns the pod that its job counts as being on a node, nil if it does
	// not. It is asked when the node is not in the snapshot.
	Assigned(job string, pod types.UID, node string) *corev1.Pod
	// Pods lists the pods of the API server, as the informers have them.
	Pods() corelisters.PodLister
}

// Host is one node of a snapshot.
type Host interface {
	Name() string
	// Node is the API object, nil if only pods on the node were seen.
	Node() *corev1.Node
	// Pods yields the pods that the snapshot shows on the node, by a key that is
	// unique on it.
	Pods() iter.Seq2[string, *corev1.Pod]
	// Len is how many pods there are.
	Len() int
	// ShowsExactly reports whether Pods yields exactly these. It is called for every node
	// at every session and must not allocate.
	ShowsExactly(pods map[string]*corev1.Pod) bool
	// Pod returns the pod of a name, nil if there is none.
	Pod(name types.NamespacedName) *corev1.Pod
}
