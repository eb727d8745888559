// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// warmup keeps nodes out of use until the snapshot shows the pods that were on
// them when the process started. Volcano opens its first sessions when the
// informers have their lists, which is before its cache has worked through
// them: a node can be seen before its pods, and would look empty.
type warmup struct {
	begun bool
	// waiting are the pods not seen yet, by node.
	waiting map[string]map[types.UID]*corev1.Pod
}

// begin lists, once per process, the pods with devices that the API server has
// bound.
func (w *warmup) begin(ssn *framework.Session, s *Settings) {
	if w.begun {
		return
	}
	w.begun = true
	w.waiting = map[string]map[types.UID]*corev1.Pod{}
	pods, err := podLister(ssn).List(labels.Everything())
	if err != nil {
		// A lister reads memory and does not fail.
		klog.ErrorS(err, "List the pods that are bound already")
	}
	for _, pod := range pods {
		if !scheduled(pod) || over(pod) || !mayHold(pod, s) {
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
func (w *warmup) settle(ssn *framework.Session) {
	for name, pods := range w.waiting {
		for uid, pod := range pods {
			if shown(ssn.Nodes[name], pod) || gone(podLister(ssn), pod) {
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
