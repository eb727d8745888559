// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"
)

// readings is for how many readings of all specifications a start waits at least: the runtime may
// have one under way that misses the new specification, then comes the one that finds it, and it is
// to have as much time again, since it shares the processors with others.
const readings = 3

// settle waits until the container runtime has surely seen what was written before: for Settle, and
// longer on a node where reading all specifications takes long.
func (k *Keeper) settle(ctx context.Context) error {
	begin, wait := time.Now(), k.cfg.Settle
	if k.cfg.Reader != nil {
		took, err := k.cfg.Reader.Read(ctx)
		if err != nil {
			return fmt.Errorf("wait for the container runtime: %w", err)
		}
		wait = max(wait, readings*took)
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("wait for the container runtime: %w", ctx.Err())
	case <-time.After(wait - time.Since(begin)):
		return nil
	}
}
