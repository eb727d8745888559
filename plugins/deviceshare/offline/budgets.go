// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// budget is a PodDisruptionBudget as it was added, with the change of how many healthy pods it has.
type budget struct {
	added    *policyv1.PodDisruptionBudget
	selector labels.Selector
	change   int32
}

// allowedNow is how many pods may be evicted now. It never exceeds what was added, since it is not
// known how many healthy pods the budget lacked then.
func (b *budget) allowedNow() int32 {
	return max(0, b.added.Status.DisruptionsAllowed+min(0, b.change))
}

// countsAsHealthy reports whether a budget has a pod among its healthy ones. It takes a running pod
// for ready.
func (b *budget) countsAsHealthy(p *corev1.Pod) bool {
	_, isLeaving := b.added.Status.DisruptedPods[p.Name]
	return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && !isLeaving && b.selector.Matches(labels.Set(p.Labels))
}

func (c *Cluster) addBudget(o *policyv1.PodDisruptionBudget) error {
	selector, err := metav1.LabelSelectorAsSelector(o.Spec.Selector)
	if err != nil {
		return fmt.Errorf("add PodDisruptionBudget %s: read its selector: %w", nameOf(o), err)
	}
	if c.server.budgets[o.Namespace] == nil {
		c.server.budgets[o.Namespace] = map[string]*budget{}
	}
	c.server.budgets[o.Namespace][o.Name] = &budget{added: o, selector: selector}
	return c.cache.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Informer().GetIndexer().Add(o)
}

// updateBudgets does what the disruption controller does when a pod has started or is gone, which
// changes the number of healthy pods by one.
func (c *Cluster) updateBudgets(p *corev1.Pod, change int32) error {
	for _, b := range c.server.budgets[p.Namespace] {
		if !b.countsAsHealthy(p) {
			continue
		}
		b.change += change
		known := b.added.DeepCopy()
		known.Status.DisruptionsAllowed = b.allowedNow()
		if err := c.cache.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Informer().GetIndexer().Update(known); err != nil {
			return fmt.Errorf("update PodDisruptionBudget %s: %w", nameOf(known), err)
		}
	}
	return nil
}
