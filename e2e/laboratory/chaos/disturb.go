// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
)

// Disturber carries out events on an installed cluster. It is used by one goroutine; what ends
// after a while ends in the background.
type Disturber struct {
	cluster *sandbox.Cluster
	user    *user.User
	proc    procfs.FS
	random  *rand.Rand // which of several replicas
	// spared is until when a target is not killed, so that it gets to do something between two
	// deaths.
	spared map[string]time.Time
	// kubeletDied is when the kubelet was killed last.
	kubeletDied time.Time

	ends sync.WaitGroup
	mu   sync.Mutex
	busy map[string]bool // what is frozen, broken, cut or full
}

// NewDisturber begins to disturb a cluster.
func NewDisturber(c *sandbox.Cluster, u *user.User, seed uint64) (*Disturber, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, fmt.Errorf("look at the machine's processes: %w", err)
	}
	return &Disturber{cluster: c, user: u, proc: proc, random: rand.New(rand.NewPCG(seed, 1<<63)),
		spared: map[string]time.Time{}, busy: map[string]bool{}}, nil
}

// Do carries out an event. It reports whether it did: a component may just not run.
func (d *Disturber) Do(ctx context.Context, e Event) (bool, error) {
	switch e.Action {
	case Kill:
		return d.kill(ctx, e)
	case Freeze:
		return d.during(e, func() (bool, error) { return d.signal(ctx, e.Target, syscall.SIGSTOP) },
			func() error { return d.thaw(e.Target) })
	case Configure:
		return true, d.edit(ctx, d.user.ConfigureNodes, e.Target)
	case Tune:
		return true, d.edit(ctx, d.user.ConfigureDevices, e.Target)
	case Break:
		words := strings.Fields(e.Target)
		if words[0] == "xid" {
			words = append(words, "79") // the device has fallen off the bus
		}
		return d.during(e, func() (bool, error) { return d.gpu(ctx, words...) },
			func() error { _, err := d.gpu(context.WithoutCancel(ctx), "restore", words[1]); return err })
	case Cut:
		pod := ""
		return d.during(e, func() (did bool, err error) { pod, did, err = d.cut(ctx); return did, err },
			func() error { return d.mend(context.WithoutCancel(ctx), pod) })
	case Fill:
		return d.during(e, func() (bool, error) { return true, d.fill(ctx) },
			func() error { return d.empty(context.WithoutCancel(ctx)) })
	}
	return false, fmt.Errorf("unknown action %q", e.Action)
}

// kill kills a component, unless it was killed just before.
func (d *Disturber) kill(ctx context.Context, e Event) (bool, error) {
	if time.Now().Before(d.spared[e.Target]) || !d.isApart(ctx, e.Target) {
		return false, nil
	}
	did, err := d.signal(ctx, e.Target, syscall.SIGKILL)
	if !did || err != nil {
		return did, err
	}
	d.spare(e.Target, e.Spare)
	switch e.Target {
	case sandbox.Kubelet:
		d.kubeletDied = time.Now()
		d.spare(sandbox.Containerd, apart)
	case sandbox.Containerd:
		d.spare(sandbox.Kubelet, apart)
	}
	if component, isInPods := components[e.Target]; e.Soon && isInPods {
		d.ends.Go(func() { d.hurry(ctx, component) })
	}
	return true, nil
}

// spare leaves a target alone for so long, or longer where that was said before.
func (d *Disturber) spare(target string, duration time.Duration) {
	if until := time.Now().Add(duration); until.After(d.spared[target]) {
		d.spared[target] = until
	}
}

// hurry has a component started again soon. It takes a moment until the API server knows of its
// end.
func (d *Disturber) hurry(ctx context.Context, component string) {
	for range 4 {
		time.Sleep(500 * time.Millisecond)
		if did, err := d.cluster.Hurry(ctx, component); did || err != nil {
			return
		}
	}
}

// Settle waits until everything that ends after a while has ended.
func (d *Disturber) Settle() { d.ends.Wait() }

// during begins something, and ends it when its time is over. What is under way is not begun again.
func (d *Disturber) during(e Event, begin func() (bool, error), end func() error) (bool, error) {
	key := string(e.Action) + " " + e.Target
	d.mu.Lock()
	under := d.busy[key]
	d.mu.Unlock()
	if under {
		return false, nil
	}
	did, err := begin()
	if !did || err != nil {
		return did, err
	}
	d.mark(key, true)
	d.ends.Go(func() {
		time.Sleep(e.For)
		for end() != nil { // the API server, or the component, may be away
			time.Sleep(time.Second)
		}
		d.mark(key, false)
	})
	return true, nil
}

func (d *Disturber) mark(key string, busy bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy[key] = busy
}

// components are the installed ones, by target.
var components = map[string]string{
	Leader: sandbox.Scheduler, Standby: sandbox.Scheduler,
	sandbox.DevicePlugin: sandbox.DevicePlugin, sandbox.Webhook: sandbox.Webhook,
}

// program is what runs as an installed component.
func program(component string) string { return "deviceshare-" + component }

// signal sends a signal to one process of a target; false if none runs.
func (d *Disturber) signal(ctx context.Context, target string, s syscall.Signal) (bool, error) {
	isIt := func(member) bool { return true }
	if target == Leader || target == Standby {
		leader, err := d.cluster.LeadingScheduler(ctx)
		if err != nil {
			return false, err
		}
		isIt = func(m member) bool { return (m.pod == string(leader.UID)) == (target == Leader) }
	}
	pids, err := d.processes(target, isIt)
	if err != nil || len(pids) == 0 {
		return false, err
	}
	pid := pids[d.random.IntN(len(pids))]
	if err := syscall.Kill(pid, s); err != nil && err != syscall.ESRCH {
		return false, fmt.Errorf("send %q to %s, process %d: %w", s, target, pid, err)
	}
	return true, nil
}

// thaw lets all processes of a target go on, whichever was frozen and whichever leads by now.
func (d *Disturber) thaw(target string) error {
	pids, err := d.processes(target, func(member) bool { return true })
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed
	}
	return err
}

// processes are the machine's numbers of a target's processes, of those in pods only some.
func (d *Disturber) processes(target string, isIt func(member) bool) ([]int, error) {
	var pids []int
	component, isInPods := components[target]
	if !isInPods {
		for _, c := range d.cluster.Components() {
			if c.Name == target && c.PID != 0 {
				pids = append(pids, c.PID)
			}
		}
		return pids, nil
	}
	all, err := members(d.proc, d.cluster.Cgroup())
	for _, m := range all {
		if m.program == program(component) && isIt(m) {
			pids = append(pids, m.host)
		}
	}
	return pids, err
}

// edit edits a ConfigMap. It is tried once: the next edit says something else.
func (d *Disturber) edit(ctx context.Context, configure func(context.Context, string) error, text string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return configure(ctx, text)
}

// gpu orders something of the fake driver.
func (d *Disturber) gpu(ctx context.Context, words ...string) (bool, error) {
	_, err := d.cluster.FakeGPU(ctx, words...)
	return err == nil, err
}

// cut makes the API server unreachable from the device plugin's pod, which it returns.
func (d *Disturber) cut(ctx context.Context) (pod string, did bool, err error) {
	all, err := members(d.proc, d.cluster.Cgroup())
	if err != nil {
		return "", false, err
	}
	for _, m := range all {
		if m.program == program(sandbox.DevicePlugin) {
			return m.pod, true, d.route(ctx, "add", m)
		}
	}
	return "", false, nil
}

// mend undoes cut, whatever has become of the pod's containers: its network lives as long as the
// pod.
func (d *Disturber) mend(ctx context.Context, pod string) error {
	all, err := members(d.proc, d.cluster.Cgroup())
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.pod == pod {
			return d.route(ctx, "del", m)
		}
	}
	return nil // the pod is gone, and its network with it
}

// route adds or removes a route to nowhere in the network of a process.
func (d *Disturber) route(ctx context.Context, verb string, m member) error {
	server, err := url.Parse(d.cluster.RestConfig().Host)
	if err != nil {
		return fmt.Errorf("find the API server's address: %w", err)
	}
	_, err = d.cluster.Run(ctx, "nsenter", "--net", "--target", strconv.Itoa(m.cluster), "ip", "route", verb, "blackhole", server.Hostname()+"/32")
	return err
}
