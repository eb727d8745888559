// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// warmup keeps nodes that appear out of use until the snapshot shows the pods that
// are on them. Volcano opens its first sessions when the informers have their
// lists, which is before its cache has worked through them: a node can be seen
// before its pods, and would look empty. So would a node that was deleted and
// registered anew: Volcano forgets its pods with it, and takes each in again when
// that pod changes next.
type warmup struct {
	// waiting are the pods not seen yet, by node.
	waiting map[string]map[types.UID]*corev1.Pod
}

// appeared returns the nodes that were not in the snapshot before, by name. A node
// of another UID is another node.
func appeared(known map[string]*nodeState, fresh []*nodeState) map[string]struct{} {
	var out map[string]struct{}
	for _, n := range fresh {
		if old, ok := known[n.name]; ok && old.uid() == n.uid() {
			continue
		}
		if out == nil {
			out = map[string]struct{}{}
		}
		out[n.name] = struct{}{}
	}
	return out
}

// begin lists, for nodes that appeared, the pods with devices that the API server
// has bound to them.
func (w *warmup) begin(nodes map[string]struct{}, pods corelisters.PodLister, s *Settings) {
	if len(nodes) == 0 {
		return
	}
	if w.waiting == nil {
		w.waiting = map[string]map[types.UID]*corev1.Pod{}
	}
	all, err := pods.List(labels.Everything())
	if err != nil {
		// A lister reads memory and does not fail.
		klog.ErrorS(err, "List the pods that are bound already")
	}
	for _, pod := range all {
		if _, appears := nodes[pod.Spec.NodeName]; !appears || !scheduled(pod) || over(pod) || !mayHold(pod, s) {
			continue
		}
		node := w.waiting[pod.Spec.NodeName]
		if node == nil {
			node = map[types.UID]*corev1.Pod{}
			w.waiting[pod.Spec.NodeName] = node
		}
		node[pod.UID] = pod
	}
}

// settle strikes out the pods that the snapshot shows, and those that have
// ended since.
func (w *warmup) settle(nodes map[string]*api.NodeInfo, lister corelisters.PodLister) {
	for name, pods := range w.waiting {
		for uid, pod := range pods {
			if shown(nodes[name], pod) || gone(lister, pod) {
				delete(pods, uid)
			}
		}
		if len(pods) == 0 {
			delete(w.waiting, name)
		}
	}
}

// cold reports whether pods of the node have yet to appear.
func (w *warmup) cold(node string) bool {
	_, ok := w.waiting[node]
	return ok
}

// awaited names one of the pods of the node that have yet to appear, and says how
// many there are. It is the first by name, so that the text stays as it is.
func (w *warmup) awaited(node string) string {
	var names []string
	for _, pod := range w.waiting[node] {
		names = append(names, pod.Namespace+"/"+pod.Name)
	}
	switch {
	case len(names) == 0:
		return "no pod"
	case len(names) == 1:
		return "pod " + names[0]
	}
	return fmt.Sprintf("pod %s and %d more", slices.Min(names), len(names)-1)
}

// shown reports whether the snapshot has the pod on the node. A node that is not
// in the snapshot shows nothing, and is not used either.
func shown(node *api.NodeInfo, pod *corev1.Pod) bool {
	if node == nil {
		return false
	}
	seen, ok := onNode(node, pod)
	return ok && seen.UID == pod.UID
}

// gone reports whether the pod was deleted or has ended.
func gone(pods corelisters.PodLister, pod *corev1.Pod) bool {
	now, err := pods.Pods(pod.Namespace).Get(pod.Name)
	return err != nil || now.UID != pod.UID || over(now)
}

func podLister(ssn *framework.Session) corelisters.PodLister {
	return ssn.InformerFactory().Core().V1().Pods().Lister()
}
