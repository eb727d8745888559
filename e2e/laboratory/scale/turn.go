// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/pprof/profile"

	"deviceshare/e2e/sandbox"
)

// patience is how long a turn may take until its last pod is bound.
const patience = 20 * time.Minute

// breath is how long the scheduler gets to notice that the pods of a turn are gone.
const breath = 3 * time.Second

// turn is what was measured while the pods of one kind were placed.
type turn struct {
	// took is the time from the first creation until the last pod was seen bound.
	took time.Duration
	// created is the part of took until the last request to create something was answered.
	created time.Duration
	// scheduler, load and rest are the processor times of the scheduler, of this program, and of
	// the other components.
	scheduler, load, rest time.Duration
	profiles              []*profile.Profile
}

// cluster is one size under measurement.
type cluster struct {
	*sandbox.Cluster
	clients  clients
	kubelets *kubelets
	profiler *profiler
	say      func(string)
	turns    int
}

// run does one turn and takes its pods away again.
func (c *cluster) run(ctx context.Context, w Workload, k kind) (turn, error) {
	c.turns++
	name := fmt.Sprintf("t%d-%s", c.turns, k)
	t, err := c.place(ctx, w, k, name)
	if err != nil {
		return t, fmt.Errorf("%d %s with kind %s: %w", w.Pods, w.Name, k, err)
	}
	if k == withDevices {
		if err := checkDevices(c.kubelets.snapshot()); err != nil {
			return t, err
		}
	}
	return t, c.clear(ctx)
}

// place creates the pods of a turn and waits until all are bound.
func (c *cluster) place(ctx context.Context, w Workload, k kind, name string) (turn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not bound after %s", patience))
	defer cancel()
	before, err := c.spent()
	if err != nil {
		return turn{}, err
	}
	placing, done := context.WithCancel(ctx)
	defer done()
	type profiles struct {
		all []*profile.Profile
		err error
	}
	followed := make(chan profiles, 1)
	go func() {
		all, err := c.profiler.follow(ctx, placing)
		followed <- profiles{all, err}
	}()

	begin := time.Now()
	err = c.clients.create(ctx, w, k, name)
	created := time.Since(begin)
	if err == nil {
		err = c.waitBound(ctx, w.Pods)
	}
	after, spentErr := c.spent()
	done()
	p := <-followed
	if err := errors.Join(err, spentErr, p.err); err != nil {
		return turn{}, err
	}
	t := turn{created: created, scheduler: after.scheduler - before.scheduler, load: after.load - before.load, rest: after.rest - before.rest, profiles: p.all}
	for _, pod := range c.kubelets.snapshot() {
		t.took = max(t.took, pod.boundAt.Sub(begin))
	}
	return t, nil
}

// waitBound waits until so many pods are bound, and says now and then how many are.
func (c *cluster) waitBound(ctx context.Context, pods int) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	said := time.Now()
	for {
		all, bound := c.kubelets.counts()
		if bound >= pods {
			return nil
		}
		if time.Since(said) > 15*time.Second {
			said = time.Now()
			c.say(fmt.Sprintf("    %d of %d pods are bound (%d created)", bound, pods, all))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until pods are bound, %d of %d are: %w", bound, pods, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// clear takes all pods, jobs and groups away and waits until they are gone.
func (c *cluster) clear(ctx context.Context) error {
	for {
		if err := c.clients.deleteAll(ctx); err != nil {
			return err
		}
		objects, err := c.clients.left(ctx)
		if err != nil {
			return err
		}
		pods, _ := c.kubelets.counts()
		wait := breath
		if objects+pods > 0 {
			wait = time.Second
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("take the pods away: %w", context.Cause(ctx))
		case <-time.After(wait):
		}
		if objects+pods == 0 {
			return nil
		}
	}
}

// spending is processor time since the start.
type spending struct{ scheduler, load, rest time.Duration }

func (c *cluster) spent() (spending, error) {
	s := spending{load: own()}
	for _, part := range c.Components() {
		if part.PID == 0 {
			return s, fmt.Errorf("component %s does not run: %s", part.Name, part.LastExit)
		}
		time, err := processor(part.PID)
		if err != nil {
			return s, err
		}
		if part.Name == sandbox.Scheduler {
			s.scheduler = time
		} else {
			s.rest += time
		}
	}
	return s, nil
}

// schedulerPID is the scheduler's process.
func (c *cluster) schedulerPID() (int, error) {
	for _, part := range c.Components() {
		if part.Name == sandbox.Scheduler && part.PID != 0 {
			return part.PID, nil
		}
	}
	return 0, errors.New("the scheduler does not run")
}
