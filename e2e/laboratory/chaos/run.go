// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"

	"deviceshare/e2e/report"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
)

// Options say how much a run does.
type Options struct {
	Seed  uint64
	Kills int
	// Lanes is how many orders of users are under way at a time.
	Lanes int
	// Patience is how long an order may take.
	Patience time.Duration
	// Progress gets a line now and then.
	Progress func(string)
	// Enough ends the kills before there were so many. The run then ends as it always does: with
	// the last orders, every check and the report. Nil is for a run that nobody ends.
	Enough context.Context
}

// run is one run.
type run struct {
	Options
	cluster   *sandbox.Cluster
	history   *History
	observer  *Observer
	disturber *Disturber
	looks     int

	mu    sync.Mutex
	found []Violation
	last  string
}

// Run disturbs an installed cluster under load. It ends with the first violation, or when so many
// components have been killed and everything has settled. An error says that the run itself failed.
func Run(ctx context.Context, c *sandbox.Cluster, o Options) (Report, error) {
	r := &run{Options: o, cluster: c, history: NewHistory(time.Now)}
	u, err := user.New(ctx, c.Client(), Namespace)
	if err != nil {
		return Report{}, err
	}
	if r.observer, err = NewObserver(c); err != nil {
		return Report{}, err
	}
	if r.disturber, err = NewDisturber(c, u, o.Seed); err != nil {
		return Report{}, err
	}
	if err := r.prepare(ctx, u); err != nil {
		return Report{}, err
	}
	traffic, err := r.traffic(ctx)
	if err != nil {
		return Report{}, err
	}
	residents, err := r.settle(ctx, u)
	if err != nil {
		return Report{}, err
	}
	if err := createCrowd(ctx, c.Client(), o.Seed); err != nil {
		return Report{}, err
	}
	begin := time.Now()
	more, stop := context.WithCancel(ctx)
	defer stop()
	var ordered sync.WaitGroup
	ordered.Go(func() { traffic.Run(ctx, more, o.Lanes, o.Seed) })
	kills := r.disturb(ctx, u, residents)
	took := time.Since(begin)
	stop()
	r.disturber.Settle()
	if err := quiet(ctx, u); err != nil {
		return Report{}, err
	}
	r.calm(ctx, &ordered)
	deleteCrowd(ctx, c.Client())
	r.agree(ctx)
	for _, v := range residents.Gone(ctx, u) {
		r.violated(v)
	}
	r.nothingLeft(ctx, u)
	return r.report(kills, took, time.Since(begin)), ctx.Err()
}

// whileWanted returns a context that ends with ctx, or when somebody has seen enough.
func (o *Options) whileWanted(ctx context.Context) (context.Context, context.CancelFunc) {
	wanted, stop := context.WithCancel(ctx)
	if o.Enough == nil {
		return wanted, stop
	}
	unhook := context.AfterFunc(o.Enough, stop)
	return wanted, func() { unhook(); stop() }
}

// prepare runs two schedulers, gives devices all modes and the records a disk that can be filled,
// and has pods differ in importance.
func (r *run) prepare(ctx context.Context, u *user.User) error {
	if out, err := r.cluster.Upgrade(ctx, "--wait", "--set", "scheduler.replicas=2"); err != nil {
		return fmt.Errorf("run two schedulers: %w\n%s", err, out)
	}
	if err := quiet(ctx, u); err != nil {
		return err
	}
	if err := createPriorities(ctx, r.cluster.Client()); err != nil {
		return err
	}
	if err := r.disturber.Confine(ctx); err != nil {
		return err
	}
	return r.cluster.WaitReady(ctx, sandbox.DevicePlugin)
}

// quiet sets what no event changes for good. The API server, or what guards its writes, may just be
// on its way back.
func quiet(ctx context.Context, u *user.User) error {
	for {
		err := errors.Join(u.ConfigureNodes(ctx, Quiet()), u.ConfigureDevices(ctx, Untuned()))
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, time.Second)
	}
}

// settle starts the residents and waits until they run.
func (r *run) settle(ctx context.Context, u *user.User) (Residents, error) {
	show, err := r.cluster.FakeGPU(ctx, "show")
	if err != nil {
		return nil, fmt.Errorf("ask the driver: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	return settle(ctx, u, show)
}

func (r *run) traffic(ctx context.Context) (*Traffic, error) {
	objects, err := dynamic.NewForConfig(r.cluster.RestConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	t := &Traffic{Client: r.cluster.Client(), Dynamic: objects, History: r.history, Patience: r.Patience, Found: r.violated}
	show, err := r.cluster.FakeGPU(ctx, "show")
	if err != nil {
		return nil, err
	}
	t.Lost = deviceAt(show, Lost)
	return t, nil
}

// violated keeps a violation, and with the first one what happened before.
func (r *run) violated(v Violation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.found) == 0 {
		r.last = r.history.Last()
	}
	r.found = append(r.found, v)
	r.Progress("VIOLATION " + v.String())
}

// broken reports whether a promise was broken.
func (r *run) broken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.found) > 0
}

// disturb carries out the plan until enough was killed, and looks after each event.
func (r *run) disturb(ctx context.Context, u *user.User, residents Residents) (kills int) {
	plan, told, breath := NewPlan(r.Seed), time.Now(), breath{}
	wanted, stop := r.whileWanted(ctx)
	defer stop()
	for r.goesOn(wanted, kills) {
		if breath.isNeeded(kills, r.progress()) {
			r.breathe(ctx, u, func() bool { return wanted.Err() == nil && breath.isNeeded(kills, r.progress()) })
		}
		e := plan.Next()
		if pause(wanted, e.Pause); wanted.Err() != nil {
			break
		}
		did, err := r.disturber.Do(ctx, e)
		switch {
		case err != nil:
			r.history.Note("%s: %v", e, err)
			r.history.Count("events that could not be carried out: " + string(e.Action))
		case did:
			r.history.Note("%s", e)
			r.history.Count(kindOf(e))
			if e.Action == Kill {
				kills++
			}
		}
		r.look(ctx)
		if time.Since(told) > 20*time.Second {
			told = time.Now()
			for _, v := range residents.Gone(ctx, u) {
				r.violated(v)
			}
			r.Progress(fmt.Sprintf("%d of %d kills, %d looks, %d pods succeeded", kills, r.Kills, r.looks, r.history.Of("pods succeeded")))
		}
	}
	return kills
}

// goesOn reports whether there is anything more to do to the cluster.
func (r *run) goesOn(wanted context.Context, kills int) bool {
	return kills < r.Kills && wanted.Err() == nil && !r.broken()
}

// kindOf is the name under which an event is counted.
func kindOf(e Event) string {
	if e.Action == Configure || e.Action == Tune || e.Action == Break {
		return "events: " + string(e.Action)
	}
	return "events: " + string(e.Action) + " " + e.Target
}

// look looks once. When the API server is away there is nothing to compare with.
func (r *run) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	sight, err := r.observer.Look(ctx)
	if err != nil {
		r.history.Count("looks without an API server")
		return
	}
	r.looks++
	if sight.Ledger != nil {
		r.history.Count("looks without the scheduler's ledger")
	}
	for _, v := range sight.Violations {
		r.violated(v)
	}
}

// calm waits for the last orders, and looks meanwhile.
func (r *run) calm(ctx context.Context, ordered *sync.WaitGroup) {
	r.history.Note("nothing more is done")
	done := make(chan struct{})
	go func() { ordered.Wait(); close(done) }()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			<-done
			return
		case <-time.After(time.Second):
			r.look(ctx)
		}
	}
}

// agree wants that the scheduler believes what the API server says, now that nothing happens.
func (r *run) agree(ctx context.Context) {
	r.expect(ctx, "ledger", func(ctx context.Context) (string, error) { return r.observer.Agree(ctx) })
}

// nothingLeft wants that nothing is used by or promised to anybody when all pods are gone.
func (r *run) nothingLeft(ctx context.Context, u *user.User) {
	if r.broken() {
		return // pods that are stuck are shown already
	}
	if err := u.DeleteAll(ctx); err != nil {
		r.violated(Violation{"nothing left", err.Error()})
		return
	}
	r.expect(ctx, "nothing left", func(ctx context.Context) (string, error) {
		left, err := r.observer.Left(ctx)
		return strings.Join(left, "; "), err
	})
	r.agree(ctx)
}

// expect waits until nothing is wrong any more. What is not right in time breaks a promise.
func (r *run) expect(ctx context.Context, promise string, wrong func(context.Context) (string, error)) {
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	last, lastErr := "", error(nil)
	for !r.broken() {
		text, err := wrong(ctx)
		if err == nil && text == "" {
			return
		}
		if ctx.Err() != nil {
			r.violated(Violation{promise, fmt.Sprintf("%s (%v)", last, lastErr)})
			return
		}
		last, lastErr = text, err
		pause(ctx, time.Second)
	}
}

// deviceAt is the UUID of the device with an index.
func deviceAt(show string, index int) string {
	return report.Field(show, fmt.Sprintf("device index=%d ", index), "uuid")
}
