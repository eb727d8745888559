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
}

// Report is what a run found.
type Report struct {
	Kills, Looks int
	Took         time.Duration
	Counts       string
	Violations   []Violation
	// Last are the last events before the first violation, or before the end.
	Last string
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
	begin := time.Now()
	more, stop := context.WithCancel(ctx)
	defer stop()
	var ordered sync.WaitGroup
	ordered.Go(func() { traffic.Run(ctx, more, o.Lanes, o.Seed) })
	kills := r.disturb(ctx)
	stop()
	r.disturber.Settle()
	if err := u.ConfigureNodes(ctx, Quiet()); err != nil {
		return Report{}, err
	}
	r.calm(ctx, &ordered)
	r.nothingLeft(ctx, u)
	return r.report(kills, time.Since(begin)), errors.Join(ctx.Err())
}

// prepare gives devices all modes and the records a disk that can be filled.
func (r *run) prepare(ctx context.Context, u *user.User) error {
	if err := u.ConfigureNodes(ctx, Quiet()); err != nil {
		return err
	}
	if err := r.disturber.Confine(ctx); err != nil {
		return err
	}
	return r.cluster.WaitReady(ctx, sandbox.DevicePlugin)
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
	t.Lost, t.Moved = deviceAt(show, Lost), deviceAt(show, Moved)
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
func (r *run) disturb(ctx context.Context) (kills int) {
	plan, told := NewPlan(r.Seed), time.Now()
	for kills < r.Kills && ctx.Err() == nil && !r.broken() {
		e := plan.Next()
		pause(ctx, e.Pause)
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
			r.Progress(fmt.Sprintf("%d of %d kills, %d looks, %d pods succeeded", kills, r.Kills, r.looks, r.history.Of("pods succeeded")))
		}
	}
	return kills
}

// kindOf is the name under which an event is counted.
func kindOf(e Event) string {
	if e.Action == Configure || e.Action == Break {
		return "events: " + string(e.Action)
	}
	return "events: " + string(e.Action) + " " + e.Target
}

// look looks once. When the API server is away there is nothing to compare with.
func (r *run) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found, err := r.observer.Look(ctx)
	if err != nil {
		r.history.Count("looks without an API server")
		return
	}
	r.looks++
	for _, v := range found {
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

// nothingLeft wants that no container uses a device when all pods are gone, and that nothing is
// promised to anybody.
func (r *run) nothingLeft(ctx context.Context, u *user.User) {
	if r.broken() {
		return // pods that are stuck are shown already
	}
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	if err := u.DeleteAll(ctx); err != nil {
		r.violated(Violation{"nothing left", err.Error()})
		return
	}
	for {
		left, err := r.left(ctx)
		if err == nil && left == "" {
			return
		}
		if ctx.Err() != nil {
			r.violated(Violation{"nothing left", fmt.Sprintf("%s (%v)", left, err)})
			return
		}
		pause(ctx, time.Second)
	}
}

// left lists what pods left behind: processes at the driver, CDI specs, containers' directories.
func (r *run) left(ctx context.Context) (string, error) {
	var out []string
	show, err := r.cluster.FakeGPU(ctx, "show")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(show) {
		if w := strings.Fields(line); len(w) > 0 && w[0] == "process" && !strings.Contains(line, "used_mib=0 ") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	records, err := r.cluster.Run(ctx, "sh", "-c", "ls -d /run/cdi/volcano.sh-vgpu-*.json "+records+"/hami-core/containers/* 2>/dev/null || true")
	if err != nil {
		return "", err
	}
	out = append(out, strings.Fields(records)...)
	return strings.Join(out, "; "), nil
}

func (r *run) report(kills int, took time.Duration) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.found) == 0 {
		r.last = r.history.Last()
	}
	return Report{Kills: kills, Looks: r.looks, Took: took, Counts: r.history.Counts(), Violations: r.found, Last: r.last}
}

// deviceAt is the UUID of the device with an index.
func deviceAt(show string, index int) string {
	return report.Field(show, fmt.Sprintf("device index=%d ", index), "uuid")
}
