// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// gpus is how many devices the real node has, memoryMiB what each has. The device with the index
// hopper enters and leaves mode mig without a reset.
const (
	gpus      = 8
	memoryMiB = sandbox.CardMiB
	hopper    = 6
)

// world is the cluster all suites share.
type world struct {
	cluster *sandbox.Cluster
	// leftover is what the node says of the process that suite strangers has left behind.
	leftover string
	// turn is held by what takes every processor, on whichever cluster: see takeTurn.
	turn *sync.Mutex
}

// takeTurn is for suites that start so many containers at once that they take every processor. It
// waits until none is at it on another cluster, and others wait until t ends. Two of them on a slow
// machine kept each other from starting any container: the kubelet gave each up after two minutes
// and began anew.
func (w *world) takeTurn(t *testing.T) {
	w.turn.Lock()
	t.Cleanup(w.turn.Unlock)
}

// suite is what users expect of a cluster in one respect.
type suite struct {
	name string
	test func(*testing.T, *world)
}

// run runs suites in their order.
func (w *world) run(t *testing.T, suites []suite) {
	runSuites(t, func() (*world, error) { return w, nil }, suites)
}

// runSuites runs suites in their order, on a cluster that begins when the first of them does. It
// reports whether all of them ran: flags of `go test` leave some out.
func runSuites(t *testing.T, begin func() (*world, error), suites []suite) (all bool) {
	ran := 0
	for _, s := range suites {
		if isLeftOut(s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			ran++
			w, err := begin()
			if err != nil {
				t.Fatal(err)
			}
			s.test(t, w)
		})
	}
	return ran == len(suites)
}

// slack is how many times slower than two quiet cores a machine may be before a suite gives up.
// Limits end what hangs; they say nothing about speed.
const slack = 8

// start starts a cluster that is as o says, with eight devices where it names none. It ends with t.
func start(t *testing.T, o sandbox.Options) *world {
	t.Helper()
	w, err := begin(t, o, sandbox.Build)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// builder builds what a sandbox with these options runs.
type builder func(context.Context, sandbox.Options) error

// buildOnce is for clusters that run the same, whatever else they are told.
func buildOnce() builder {
	var once sync.Once
	var err error
	return func(ctx context.Context, o sandbox.Options) error {
		once.Do(func() { err = sandbox.Build(ctx, o) })
		return err
	}
}

// later is start at the first call of what it returns. Of those with the same mutex one starts at a
// time, and one takes its turn.
func later(t *testing.T, o sandbox.Options, one *sync.Mutex, build builder) func() (*world, error) {
	return sync.OnceValues(func() (*world, error) {
		one.Lock()
		defer one.Unlock()
		w, err := begin(t, o, build)
		if err != nil {
			return nil, err
		}
		w.turn = one
		return w, nil
	})
}

func begin(t *testing.T, o sandbox.Options, build builder) (*world, error) {
	ctx, cancel := context.WithTimeout(context.Background(), slack*10*time.Minute)
	t.Cleanup(cancel)
	o.Topology = cmp.Or(o.Topology, topology())
	o.Audit, o.Progress = true, sandbox.TimedProgress(os.Stdout)
	// A device is trusted again after a minute without errors; the rule is the same after five
	// seconds.
	o.Args = map[string][]string{sandbox.DevicePlugin: {"--health-quiet=5s", "--health-probe=1s", "--driver-retry=2s"}}
	if o.Installed {
		// A scheduler that was killed leads again after four seconds instead of fifteen.
		o.Args[sandbox.Scheduler] = []string{"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s"}
	}
	options, err := o.Defaults()
	if err != nil {
		return nil, err
	}
	if err := build(ctx, options); err != nil {
		return nil, fmt.Errorf("build the sandbox: %w", err)
	}
	cluster, err := sandbox.Start(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("start the sandbox: %w", err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Errorf("stop the sandbox: %v", err)
		}
	})
	return &world{cluster: cluster, turn: new(sync.Mutex)}, nil
}

// topology is seven A100 and one H100 on two NUMA nodes.
func topology() string {
	cards := slices.Repeat([]sandbox.Card{sandbox.A100()}, gpus)
	cards[hopper] = sandbox.H100()
	return sandbox.Topology(cards...)
}

// user gives a suite its own namespace, emptied at the end, and a deadline: slack times what it
// takes at most on two quiet cores.
func (w *world) user(t *testing.T, namespace string, limit time.Duration) (context.Context, *user.User) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), slack*limit)
	u, err := user.New(ctx, w.cluster.Client(), namespace)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		clean, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
		defer cancel()
		if err := u.DeleteAll(clean); err != nil {
			t.Errorf("clean up namespace %s: %v", namespace, err)
		}
	})
	return ctx, u
}

// freeze keeps a component from doing anything until thaw is called.
func (w *world) freeze(t *testing.T, component string) (thaw func()) {
	t.Helper()
	goOn, err := w.cluster.Freeze(component)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := goOn(); err != nil {
			t.Error(err)
		}
	}
}

// pod begins a pod of the CUDA client.
func pod(name string) *workload.Pod { return workload.New(name, sandbox.ImageCUDAClient) }

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
