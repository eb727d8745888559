// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// TestEveryPodWaitsForItsOwnTime lets random pods be refused, start and be refused again.
func TestEveryPodWaitsForItsOwnTime(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, seed))
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	w := newWaits(5*time.Minute, now)
	refused := map[sharing.Owner][]int64{} // seconds at which it was refused since it last started
	over := 0
	for second := int64(1000); second < 20_000; second += random.Int64N(20) {
		now.SetTime(time.Unix(second, 0))
		owner := sharing.Owner(fmt.Sprint(random.IntN(5)))
		if random.IntN(20) == 0 {
			w.endWait(owner)
			delete(refused, owner)
			continue
		}
		refused[owner] = append(refused[owner], second)
		want := second-refused[owner][0] >= 300
		if got := w.isOver(owner); got != want {
			t.Fatalf("seed %d: pod %s, refused at %v, has waited for too long: %v", seed, owner, refused[owner], got)
		}
		if want {
			over++
		}
	}
	if over == 0 {
		t.Error("no pod waited for long: the test shows nothing")
	}
}

func TestARefusalThatLastsIsFinalAndPromisesNothing(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	w := newWaits(5*time.Minute, now)
	var misplaced *modes.Misplaced
	if err := w.refuseUntilLimit("a", "it is broken", "it starts later"); err.Error() != "it is broken; it starts later" || errors.As(err, &misplaced) {
		t.Errorf("at first: %v", err)
	}
	now.SetTime(time.Unix(1300, 0))
	if err := w.refuseUntilLimit("a", "it is broken", "it starts later"); err.Error() != "it is broken; the pod has waited for 5m0s" || !errors.As(err, &misplaced) {
		t.Errorf("in the end: %v", err)
	}
}
