// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// replies is a service that answers one after the other.
type replies []error

func (r *replies) Check(context.Context) error {
	err := (*r)[0]
	*r = (*r)[1:]
	return err
}

func TestAModeIsOutOfServiceWhileWhatItNeedsDoesNotWork(t *testing.T) {
	gone, other := errors.New("gone"), errors.New("other")
	a := New(node.Config{Node: "n"}, nil)
	a.Send(node.Configured{Settings: node.Settings{Offers: inMode{sharing.MPS}}})
	a.Send(node.Scanned{Devices: []node.Facts{{UUID: "GPU-0", PCI: "0000:07:00.0"}}})
	r := replies{}
	w := &serviceWatch{agent: a, mode: sharing.MPS, service: &r, failed: true}
	for i, step := range []struct {
		answer error
		want   string // the reason that is published, "" if pods are taken
	}{
		{gone, "gone"}, // at the start one failure counts
		{nil, ""},
		{gone, ""}, // it may be passing
		{nil, ""},
		{gone, ""},
		{gone, "gone"},
		{other, "other"},
		{other, "other"},
		{nil, ""},
	} {
		r = replies{step.answer}
		w.checkService(context.Background())
		c, _ := a.State().Condition("GPU-0")
		if c.Detail != step.want || (c.Kind == node.Interrupted) != (step.want != "") {
			t.Errorf("step %d: the device is %v, want %q", i, c, step.want)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for range 3 {
		r = replies{gone}
		w.checkService(ended)
	}
	if c, _ := a.State().Condition("GPU-0"); c.Kind != node.Ready {
		t.Errorf("questions that were broken off make the device %v", c)
	}
}

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
