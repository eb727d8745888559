// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

func TestWhatFailsIsDoneAgainAndHoldsUpNothingElse(t *testing.T) {
	q := NewQueue[string](time.Millisecond, 10*time.Millisecond)
	q.Add("bad")
	q.Add("bad")
	q.AddAfter("good", time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var done []string
	fails := 3
	err := q.Run(ctx, func(_ context.Context, key string) error {
		if key == "bad" && fails > 0 {
			fails--
			return errors.New("not yet")
		}
		if done = append(done, key); len(done) == 2 {
			cancel()
		}
		return nil
	})
	slices.Sort(done)
	if err != nil || fails != 0 || !slices.Equal(done, []string{"bad", "good"}) {
		t.Errorf("done %v with %d failures left, %v", done, fails, err)
	}
}
