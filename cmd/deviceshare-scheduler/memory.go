// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"k8s.io/klog/v2"
)

// memoryPart is how much of the container's limit of memory the Go runtime tries to stay below.
// The rest is for what it does not count, such as the pages of the program, and for what is
// allocated until it has noticed.
const memoryPart = 0.9

// boundMemory has garbage collected the more often the nearer memory comes to the limit of the
// container. By itself Go lets the heap grow to twice what is in use, and the kernel kills who
// exceeds the limit. Without a limit, and where the variable GOMEMLIMIT is set, nothing changes. A
// limit that is changed in place is followed until ctx ends.
func boundMemory(ctx context.Context, limit memlimit.Provider) {
	bound, err := memlimit.Set(memlimit.WithProvider(limit), memlimit.WithRatio(memoryPart), memlimit.WithRefreshInterval(ctx, time.Minute))
	switch {
	case err != nil:
		klog.ErrorS(err, "The limit of memory is unknown: garbage is collected as if there were none")
	case bound < math.MaxInt64:
		klog.InfoS("Garbage is collected the more often the nearer memory comes to a bound", "boundMiB", bound>>20)
	}
}
