// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestGarbageIsCollectedByTheLimitOfTheContainer(t *testing.T) {
	const limit = 2560 << 20
	for name, c := range map[string]struct {
		provider memlimit.Provider
		variable string
		want     int64
	}{
		"a limit":                        {memlimit.Limit(limit), "", limit / 10 * 9},
		"no limit":                       {func() (uint64, error) { return 0, memlimit.ErrNoLimit }, "", math.MaxInt64},
		"a limit that cannot be read":    {func() (uint64, error) { return 0, errors.New("no cgroup") }, "", math.MaxInt64},
		"a limit and a variable":         {memlimit.Limit(limit), "1GiB", math.MaxInt64}, // the runtime has read it at its start
		"a limit beyond what can be set": {memlimit.Limit(math.MaxUint64), "", math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", c.variable)
			if c.variable == "" {
				os.Unsetenv("GOMEMLIMIT")
			}
			before := debug.SetMemoryLimit(math.MaxInt64)
			defer debug.SetMemoryLimit(before)
			ctx, stop := context.WithCancel(t.Context())
			stop()
			boundMemory(ctx, c.provider)
			if got := debug.SetMemoryLimit(-1); got != c.want {
				t.Errorf("the runtime stays below %d, want %d", got, c.want)
			}
		})
	}
}
