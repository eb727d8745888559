// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"deviceshare/e2e/sandbox"
)

// crowds is how many Deployments of the least important pods there are, of two pods each. They want
// about all device memory, so that others get theirs by evictions.
const crowds = 7

// crowd is the i-th of them.
func crowd(i int, r *rand.Rand) deployment {
	mode := draw(r, []chance[string]{{"hami-core", 3}, {"mps", 1}, {"time-slicing", 1}, {"", 3}})
	grace := draw(r, graces())
	d := newDeployment(fmt.Sprintf("crowd-%d", i), 20_000+r.Int64N(50_000))
	template := &d.Spec.Template
	if delete(template.Annotations, modeKey); mode != "" {
		template.Annotations[modeKey] = mode
	}
	template.Spec.PriorityClassName = crowdClass
	template.Spec.TerminationGracePeriodSeconds = &grace
	return d
}

// createCrowd creates all of them.
func createCrowd(ctx context.Context, c kubernetes.Interface, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 1<<62))
	for i := range crowds {
		if err := unless(crowd(i, r).Create(ctx, c), apierrors.IsAlreadyExists); err != nil {
			return fmt.Errorf("create crowd %d: %w", i, err)
		}
	}
	return nil
}

// createPriorities creates the classes of priority, and the budget of those that may not be
// evicted.
func createPriorities(ctx context.Context, c kubernetes.Interface) error {
	for name, value := range priorities() {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		_, err := c.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{})
		if err = unless(err, apierrors.IsAlreadyExists); err != nil {
			return fmt.Errorf("create priority class %s: %w", name, err)
		}
	}
	all := intstr.FromInt(len(budgetedModes()))
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: budgeted}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &all, Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: budgeted, Operator: metav1.LabelSelectorOpExists}}}}}
	_, err := c.PolicyV1().PodDisruptionBudgets(Namespace).Create(ctx, budget, metav1.CreateOptions{})
	if err = unless(err, apierrors.IsAlreadyExists); err != nil {
		return fmt.Errorf("create budget %s: %w", budgeted, err)
	}
	return nil
}

// deleteCrowd deletes the crowd and waits until nobody of it is left.
func deleteCrowd(ctx context.Context, c kubernetes.Interface) {
	foreground := metav1.DeletePropagationForeground
	for i := range crowds {
		name := fmt.Sprintf("crowd-%d", i)
		for ctx.Err() == nil {
			err := c.AppsV1().Deployments(Namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &foreground})
			if apierrors.IsNotFound(err) {
				break
			}
			pause(ctx, time.Second)
		}
	}
}

// deletePriorities deletes what createPriorities has created.
func deletePriorities(ctx context.Context, c *sandbox.Cluster) error {
	var out []error
	for name := range priorities() {
		err := c.Client().SchedulingV1().PriorityClasses().Delete(ctx, name, metav1.DeleteOptions{})
		out = append(out, unless(err, apierrors.IsNotFound))
	}
	err := c.Client().PolicyV1().PodDisruptionBudgets(Namespace).Delete(ctx, budgeted, metav1.DeleteOptions{})
	return errors.Join(append(out, unless(err, apierrors.IsNotFound))...)
}
