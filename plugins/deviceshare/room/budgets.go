// SPDX-License-Identifier: Apache-2.0

package room

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"deviceshare/plugins/deviceshare/holds"
	"deviceshare/sharing/plan"
)

// budget is a PodDisruptionBudget and the pods that it counts.
type budget struct {
	plan.Budget
	namespace string
	selector  labels.Selector
}

// countsPod reports whether a budget counts a pod.
func (b *budget) countsPod(pod *corev1.Pod) bool {
	return pod.Namespace == b.namespace && b.selector.Matches(labels.Set(pod.Labels))
}

// readBudgets returns the budgets of the cluster, less the victims that are yet to be sent. The API
// server counts them again when they are evicted.
func (r *Room) readBudgets() (budgets []*budget) {
	factory := r.session.InformerFactory()
	if factory == nil {
		return nil
	}
	all, err := factory.Policy().V1().PodDisruptionBudgets().Lister().List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "Cannot list PodDisruptionBudgets")
		return nil
	}
	for _, pdb := range all {
		if b := newBudget(pdb); b != nil {
			r.subtractUnsent(b, pdb)
			budgets = append(budgets, b)
		}
	}
	return budgets
}

// newBudget reads a budget, nil if it counts no pods.
func newBudget(pdb *policyv1.PodDisruptionBudget) *budget {
	selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	if err != nil || pdb.Spec.Selector == nil {
		return nil
	}
	b := &budget{namespace: pdb.Namespace, selector: selector}
	b.Name, b.Allowed = pdb.Namespace+"/"+pdb.Name, int(pdb.Status.DisruptionsAllowed)
	return b
}

// budgetsOf returns the budgets that count a pod. The API server evicts no pod that several count,
// whatever they allow (policy/v1, "more than one PodDisruptionBudget"): they become one that is
// used up.
func budgetsOf(all []*budget, pod *corev1.Pod) (budgets []*plan.Budget) {
	var names []string
	for _, b := range all {
		if b.countsPod(pod) {
			budgets, names = append(budgets, &b.Budget), append(names, b.Name)
		}
	}
	if len(budgets) > 1 {
		slices.Sort(names)
		return []*plan.Budget{{Name: strings.Join(names, " and ") + " at once"}}
	}
	return budgets
}

// subtractUnsent counts the victims that the budget does not know of yet.
func (r *Room) subtractUnsent(b *budget, pdb *policyv1.PodDisruptionBudget) {
	for _, h := range r.book.InOrder() {
		for i := range h.Victims {
			r.subtractVictim(b, pdb, &h.Victims[i])
		}
	}
}

func (r *Room) subtractVictim(b *budget, pdb *policyv1.PodDisruptionBudget, v *holds.Victim) {
	t := r.session.findVictim(v)
	if t == nil || t.Pod.DeletionTimestamp != nil || !b.countsPod(t.Pod) {
		return
	}
	if _, known := pdb.Status.DisruptedPods[t.Name]; !known {
		b.Allowed--
	}
}
