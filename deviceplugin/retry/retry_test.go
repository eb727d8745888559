// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

func TestWhatFailsIsDoneAgainAndHoldsUpNothingElse(t *testing.T) {
	q := New[string](time.Millisecond, 10*time.Millisecond)
	q.Add("bad")
	q.Add("bad")
	q.AddAfter("good", time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
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

func TestWhatHangsHoldsUpNothingElseAndIsNotBegunTwice(t *testing.T) {
	q := New[string](time.Millisecond, 10*time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	hangs, done, begun := make(chan struct{}), make(chan string, 10), make(chan string, 1000)
	ended := make(chan error)
	go func() {
		ended <- q.RunApart(ctx, 20*time.Millisecond, func(ctx context.Context, key string) error {
			begun <- key
			switch key {
			case "hangs": // heeds nothing
				<-hangs
			case "waits":
				<-ctx.Done()
			}
			if key == "hangs" || ctx.Err() == nil {
				done <- key
			}
			return ctx.Err()
		})
	}()
	q.Add("hangs")
	for <-begun != "hangs" {
	}
	q.Add("waits")
	q.Add("hangs")
	q.Add("good")
	if key := <-done; key != "good" {
		t.Fatalf("%s is done first", key)
	}
	seen := map[string]int{}
	for seen["waits"] < 2 { // its attempts end, so that it comes again
		seen[<-begun]++
	}
	if seen["hangs"] > 0 {
		t.Error("what hangs was begun a second time")
	}
	close(hangs)
	if key := <-done; key != "hangs" {
		t.Errorf("%s is done, want what hung", key)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
