// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"time"

	"deviceshare/e2e/user"
)

// breathe leaves the cluster alone for as long as that is needed. Its administrator corrects the
// ConfigMaps: a scheduler that starts anew places nothing while it can read none that is right.
func (r *run) breathe(ctx context.Context, u *user.User, isNeeded func() bool) {
	_ = quiet(ctx, u) // it fails only when ctx ends
	for isNeeded() && ctx.Err() == nil && !r.broken() {
		pause(ctx, time.Second)
		r.look(ctx)
	}
}

// breathless is how many kills there may be in a row during which no order is met.
const breathless = 15

// breath says when a cluster has to be left alone for a while: one in which nothing succeeds any
// more breaks no promises. It knows no time, because a busy machine needs more of it.
type breath struct{ kills, progress int }

// isNeeded reports whether too many kills have passed since there was progress.
func (b *breath) isNeeded(kills, progress int) bool {
	if progress > b.progress {
		*b = breath{kills, progress}
	}
	return kills-b.kills >= breathless
}

// progress counts what came to a good end.
func (r *run) progress() int {
	return r.history.Of("pods succeeded") + r.history.Of("jobs complete") + r.history.Of("deployments complete")
}
