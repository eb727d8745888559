// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// failing is a duty that fails a few times before it works.
type failing struct {
	left atomic.Int32
	runs chan struct{}
}

func (f *failing) Run(ctx context.Context) error {
	if f.left.Add(-1) >= 0 {
		return errors.New("not yet")
	}
	f.runs <- struct{}{}
	<-ctx.Done()
	return nil
}

func TestADutyThatFailsIsBegunAgainAndEndsNoOther(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	bad, good := &failing{runs: make(chan struct{}, 1)}, &failing{runs: make(chan struct{}, 1)}
	bad.left.Store(2)
	over := make(chan struct{})
	go func() { runDuties(ctx, duties{others: map[string]duty{"bad": bad, "good": good}}); close(over) }()
	for _, d := range []*failing{good, bad} {
		select {
		case <-d.runs:
		case <-ctx.Done():
			t.Fatal("a duty is not begun")
		}
	}
	cancel()
	<-over
	if len(good.runs) > 0 {
		t.Error("the good one was begun twice")
	}
}

// holding is a duty that ends when it may.
type holding struct{ may chan struct{} }

func (h holding) Run(ctx context.Context) error {
	<-ctx.Done()
	<-h.may
	return nil
}

func TestADutyThatLastsIsToldToEndAfterTheOthers(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	hold, told := holding{make(chan struct{})}, make(chan struct{})
	over := make(chan struct{})
	go func() {
		runDuties(ctx, duties{others: map[string]duty{"hold": hold}, last: map[string]duty{"serve": untilTold{told}}})
		close(over)
	}()
	cancel()
	select {
	case <-told:
		t.Error("it is told while another one holds something")
	case <-time.After(200 * time.Millisecond):
	}
	close(hold.may)
	<-told
	<-over
}

// untilTold is a duty that says when it is told to end.
type untilTold struct{ told chan struct{} }

func (u untilTold) Run(ctx context.Context) error {
	<-ctx.Done()
	close(u.told)
	return nil
}
