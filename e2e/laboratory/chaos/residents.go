// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// Residents are pods that run from the beginning of a run to its end, one in each mode, by name.
// Nothing that happens to the cluster may end them or start them again. They are among the least
// important pods, and spared by what users can write: an annotation, or a budget.
type Residents map[string]*corev1.Pod

// uuidKey is an annotation that users write: the devices that a pod accepts.
const uuidKey = "volcano.sh/vgpu-use-gpuuuid"

// homes are the devices of residents, by mode. No event breaks them or edits their mode.
func homes() map[string]int {
	return map[string]int{"mig": 0, "mps": 1, "time-slicing": 2, "hami-core": 5}
}

// budgetedModes are those of the residents that a budget spares.
func budgetedModes() []string { return []string{"mps", "hami-core"} }

// settle creates the residents and waits until they run. show is what the driver says.
func settle(ctx context.Context, u *user.User, show string) (Residents, error) {
	for mode, index := range homes() {
		steps := []string{"alloc", "300", "expect", "ok", "forever"}
		if mode == "mig" { // it does not work in its partition, so that the driver would let it go
			steps = []string{"forever"}
		}
		p := pod("resident-"+mode).Annotate(modeKey, mode).Annotate(uuidKey, deviceAt(show, index)).
			App("main", workload.Ask{Number: 1, Memory: 400}, steps...).Build()
		p.Spec.PriorityClassName = crowdClass
		if slices.Contains(budgetedModes(), mode) {
			p.Labels[budgeted] = "true"
		} else {
			p.Annotations[preemptableKey] = "false"
		}
		if err := u.Create(ctx, p); err != nil {
			return nil, fmt.Errorf("settle residents: %w", err)
		}
	}
	out := Residents{}
	for mode := range homes() {
		p, err := u.WaitRunning(ctx, "resident-"+mode)
		if err != nil {
			return nil, fmt.Errorf("settle residents: %w", err)
		}
		out[p.Name] = p
	}
	return out, nil
}

// Gone lists the residents that do not run any more as they did. What the API server does not say
// just now is not known.
func (r Residents) Gone(ctx context.Context, u *user.User) []Violation {
	var out []Violation
	for _, name := range sorted(r) {
		now, err := u.Get(ctx, name)
		switch {
		case apierrors.IsNotFound(err):
			out = append(out, Violation{"residents", err.Error()})
			continue
		case err != nil:
			continue
		}
		if text := moved(r[name], now); text != "" {
			out = append(out, Violation{"residents", fmt.Sprintf("%s %s: %s", name, text, standing(now))})
		}
	}
	return out
}

// moved says what became of a pod that should run on; empty if it does.
func moved(before, now *corev1.Pod) string {
	switch {
	case now.UID != before.UID:
		return "is another pod"
	case now.Status.Phase != corev1.PodRunning:
		return "does not run any more"
	case len(now.Status.ContainerStatuses) != 1 || len(before.Status.ContainerStatuses) != 1:
		return "has no container"
	case now.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID:
		return "was started again"
	}
	return ""
}
