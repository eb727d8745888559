// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// component says how one component is started, how to see that it works, and how long it may take
// to stop.
type component struct {
	name  string
	path  string
	args  []string
	env   []string
	log   string
	grace time.Duration
	// ready returns nil once the component does its work. It is polled.
	ready func(ctx context.Context) error
}

// Restart delays of a component that died: the first, and the longest after repeated early deaths.
// A life of settled or longer resets the delay.
const (
	restartFirst = 200 * time.Millisecond
	restartMost  = 5 * time.Second
	settled      = 10 * time.Second
)

// Bounds of waiting: how often readiness is asked, and how many early deaths are too many.
const (
	pollEvery  = 50 * time.Millisecond
	tooManyEnd = 4
)

// process keeps one component running on this machine. It implements part. Its state is written
// under mu only.
type process struct {
	spec    component
	thread  *thread
	restart bool
	changed func() // called under mu, must not block

	mu     sync.Mutex
	wanted bool
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has been reaped
	since  time.Time
	starts int
	delay  time.Duration
	last   string // how the previous life ended
	timer  *time.Timer
}

// start starts the component unless it runs already.
func (p *process) start(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = true
	return p.startLocked()
}

func (p *process) startLocked() error {
	if p.cmd != nil || !p.wanted {
		return nil
	}
	log, err := os.OpenFile(p.spec.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.spec.name, err)
	}
	defer log.Close()
	cmd := exec.Command(p.spec.path, p.spec.args...)
	cmd.Env = append(os.Environ(), p.spec.env...)
	cmd.Stdout, cmd.Stderr = log, log
	fmt.Fprintf(log, "--- %s start %d: %s %q\n", time.Now().Format(time.RFC3339), p.starts+1, p.spec.path, p.spec.args)
	if err := p.thread.start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.spec.name, err)
	}
	p.cmd, p.exited, p.since = cmd, make(chan struct{}), time.Now()
	p.starts++
	go p.reap(cmd, p.exited)
	p.changed()
	return nil
}

// reap waits for the end of one life and, where wanted, arranges the next.
func (p *process) reap(cmd *exec.Cmd, exited chan struct{}) {
	_ = cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.last = nil, cmd.ProcessState.String()
	p.changed()
	close(exited)
	if !p.wanted || !p.restart {
		return
	}
	p.delay = nextDelay(p.delay, time.Since(p.since))
	p.timer = time.AfterFunc(p.delay, func() { _ = p.revive() })
}

func (p *process) revive() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.startLocked()
}

// nextDelay doubles the delay after an early death and starts over after a long life.
func nextDelay(delay, life time.Duration) time.Duration {
	if delay == 0 || life >= settled {
		return restartFirst
	}
	return min(2*delay, restartMost)
}

// stop ends the component for good: SIGTERM, then SIGKILL after its grace period.
func (p *process) stop(context.Context) error {
	p.mu.Lock()
	p.wanted = false
	if p.timer != nil {
		p.timer.Stop()
	}
	cmd, exited := p.cmd, p.exited
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-exited:
	case <-time.After(p.spec.grace):
		_ = cmd.Process.Kill()
		<-exited
	}
	return nil
}

// life is the process of the present life and what tells its end; an error when there is none to do
// that to.
func (p *process) life(do string) (*os.Process, chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil, nil, fmt.Errorf("%s %s: it is not running", do, p.spec.name)
	}
	return p.cmd.Process, p.exited, nil
}

// kill ends the present life by SIGKILL and returns once it is over; the restart policy applies.
func (p *process) kill(context.Context) error {
	life, exited, err := p.life("kill")
	if err != nil {
		return err
	}
	if err := life.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", p.spec.name, err)
	}
	<-exited
	return nil
}

// signal sends a signal that the process survives.
func (p *process) signal(_ context.Context, s syscall.Signal) error {
	life, _, err := p.life("signal")
	if err != nil {
		return err
	}
	if err := life.Signal(s); err != nil {
		return fmt.Errorf("send %q to %s: %w", s, p.spec.name, err)
	}
	return nil
}

// ComponentStatus is the state of one component.
type ComponentStatus struct {
	Name string `json:"name"`
	// PID is 0 while the component does not run.
	PID int `json:"pid"`
	// Starts counts its lives; LastExit says how the previous one ended.
	Starts   int    `json:"starts"`
	LastExit string `json:"lastExit,omitempty"`
}

func (p *process) status() ComponentStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := ComponentStatus{Name: p.spec.name, Starts: p.starts, LastExit: p.last}
	if p.cmd != nil {
		s.PID = p.cmd.Process.Pid
	}
	return s
}

// waitReady waits until the component does its work. It gives up early when it is dead or keeps
// dying, and the error then shows the end of its log.
func (p *process) waitReady(ctx context.Context) error {
	first := p.status().Starts
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := p.askReady(ctx)
		if err == nil {
			return nil
		}
		st := p.status()
		if p.dead() || st.Starts-first >= tooManyEnd {
			return fmt.Errorf("%s does not stay up (%s)\n%s", p.spec.name, st.LastExit, logTail(p.spec.log))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last answer: %w\n%s", p.spec.name, context.Cause(ctx), err, logTail(p.spec.log))
		case <-tick.C:
		}
	}
}

// askReady asks once.
func (p *process) askReady(ctx context.Context) error {
	if p.status().PID == 0 {
		return fmt.Errorf("not running")
	}
	if p.spec.ready == nil {
		return nil
	}
	ask, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return p.spec.ready(ask)
}

// log is all that the component has written, over all its lives.
func (p *process) log(context.Context) (string, error) {
	text, err := os.ReadFile(p.spec.log)
	if err != nil {
		return "", fmt.Errorf("read log of %s: %w", p.spec.name, err)
	}
	return string(text), nil
}

// dead reports that the component does not run and will not be started again.
func (p *process) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd == nil && (!p.restart || !p.wanted)
}
