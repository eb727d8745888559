// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// shapes are kinds of pods that confuse whoever guesses which pod an allocation
// is for. Amounts differ by pod, so that a swap is seen.
func shapes() []func(name string, i int64) *workload.Pod {
	see := []string{"info", "env"}
	return []func(string, int64) *workload.Pod{
		func(n string, i int64) *workload.Pod { // one container
			return pod(n).App("main", workload.Ask{Number: 1, Memory: 1000 + i, Cores: 5}, see...)
		},
		func(n string, i int64) *workload.Pod { // two GPU containers with different limits
			return pod(n).App("a", workload.Ask{Number: 1, Memory: 1100 + i}, see...).
				App("b", workload.Ask{Number: 1, Memory: 2100 + i, Cores: 7}, see...)
		},
		func(n string, i int64) *workload.Pod { // a plain container first
			return pod(n).Plain("plain", "true").
				App("gpu", workload.Ask{Number: 1, Memory: 1200 + i}, see...)
		},
		func(n string, i int64) *workload.Pod { // an init container with a request
			return pod(n).Init("warm", workload.Ask{Number: 1, Memory: 3300 + i}, see...).
				App("main", workload.Ask{Number: 1, Memory: 1300 + i, Cores: 3}, see...)
		},
		func(n string, i int64) *workload.Pod { // a sidecar
			return pod(n).Sidecar("side", workload.Ask{Number: 1, Memory: 700 + i}, append(see, "forever")...).
				App("main", workload.Ask{Number: 1, Memory: 1400 + i}, see...)
		},
		func(n string, i int64) *workload.Pod { // cores only: the webhook adds the number, the memory is the whole device's
			return pod(n).App("main", workload.Ask{Cores: 20 + i%60}, see...)
		},
		func(n string, i int64) *workload.Pod { // a percentage of whatever device
			return pod(n).App("main", workload.Ask{Number: 1, Percentage: 2 + i%5}, see...)
		},
		func(n string, _ int64) *workload.Pod { // a whole device
			return pod(n).App("main", workload.Ask{Number: 1}, see...)
		},
		func(n string, i int64) *workload.Pod { // two devices in one container
			return pod(n).App("main", workload.Ask{Number: 2, Memory: 1500 + i, Cores: 4}, see...)
		},
		func(n string, i int64) *workload.Pod { // init container larger than everything else, two app containers
			return pod(n).Init("big", workload.Ask{Number: 2, Memory: 5000 + i}, see...).
				App("a", workload.Ask{Number: 1, Memory: 900 + i}, see...).
				Plain("plain", "true").
				App("b", workload.Ask{Number: 1, Memory: 950 + i}, see...)
		},
	}
}

// Many pods of ten shapes are created at once. Every container must have seen
// exactly what its own pod's annotation says, and no admission may fail.
func testIdentity(t *testing.T, w *world) {
	w.takeTurn(t)
	for round := range rounds(1, 2) {
		t.Run(fmt.Sprintf("round_%d", round+1), func(t *testing.T) {
			ctx, u := w.user(t, fmt.Sprintf("identity-%d", round+1), 4*time.Minute)
			names := createAtOnce(ctx, t, u, round)
			checked := 0
			for _, name := range names {
				p, err := u.WaitDone(ctx, name)
				if err != nil {
					t.Fatal(err)
				}
				if p.Status.Phase != corev1.PodSucceeded {
					said, _ := u.Said(ctx, name)
					t.Errorf("pod %s: %s %s\n%s", name, p.Status.Phase, p.Status.Reason, strings.Join(said, "\n"))
					continue
				}
				n, err := compare(ctx, u, p)
				if err != nil {
					t.Error(err)
				}
				checked += n
			}
			t.Logf("%d pods, %d containers: limits and devices equal their annotations", len(names), checked)
			noAdmissionError(ctx, t, u)
		})
	}
}

func createAtOnce(ctx context.Context, t *testing.T, u *user.User, round int) []string {
	t.Helper()
	kinds := shapes()
	names := make([]string, rounds(20, 40))
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i := range names {
		names[i] = fmt.Sprintf("p%02d-shape%d", i, i%len(kinds))
		p := kinds[i%len(kinds)](names[i], int64(i+len(names)*round)).Build()
		all.Go(func() { errs[i] = u.Create(ctx, p) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// noAdmissionError looks for the way in which allocations to the wrong pod end.
func noAdmissionError(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	pods, err := u.Pods(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		if strings.Contains(pods[i].Status.Reason, "AdmissionError") {
			t.Errorf("pod %s: %s: %s", pods[i].Name, pods[i].Status.Reason, pods[i].Status.Message)
		}
	}
}
