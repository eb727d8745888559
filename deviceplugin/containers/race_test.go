// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// daemon is a mode that is a state of one device. Enter and Leave report a device
// that somebody holds.
type daemon struct {
	serves
	t       *testing.T
	entered atomic.Bool
	held    func() []node.Holder
}

func (d *daemon) Entered(context.Context, sharing.Device) (bool, error) { return d.entered.Load(), nil }
func (d *daemon) Enter(context.Context, sharing.Device) error           { return d.change(true) }
func (d *daemon) Leave(context.Context, sharing.Device) error           { return d.change(false) }

func (d *daemon) change(on bool) error {
	before := d.held()
	time.Sleep(50 * time.Microsecond)
	if after := d.held(); len(before)+len(after) > 0 {
		d.t.Errorf("the device becomes %v under %v and %v", on, before, after)
	}
	d.entered.Store(on)
	return nil
}

// nobody knows no pods.
type nobody struct{}

func (nobody) Await(context.Context, sharing.Owner) (types.NamespacedName, bool) {
	return types.NamespacedName{}, false
}
func (nobody) Live() map[sharing.Owner]types.NamespacedName { return nil }
func (nobody) Pod(sharing.Owner) (*corev1.Pod, bool)        { return nil, false }
func (nobody) Fetch(context.Context, types.NamespacedName) (*corev1.Pod, error) {
	return nil, errors.New("there is no API server")
}

// raceway is a manager and a mover over one device whose mode is edited.
type raceway struct {
	manager *Manager
	mover   *agent.Mover
	agent   *agent.Agent
	mps     *daemon
	device  sharing.DeviceID
}

// inMode offers every device in a mode.
type inMode struct{ mode sharing.Mode }

func (o inMode) Offer(*node.Facts) node.Offer {
	return node.Offer{Mode: o.mode, MemoryScaling: 1, CoreScaling: 1, MaxShares: 40}
}

func newRaceway(t *testing.T) *raceway {
	t.Helper()
	r := &raceway{mps: &daemon{serves: serves{sharing.MPS}, t: t}}
	from := drivertest.New(drivertest.A100(0))
	if err := from.Open(); err != nil {
		t.Fatal(err)
	}
	found, err := driver.Scan(from)
	if err != nil {
		t.Fatal(err)
	}
	r.device = found[0].UUID
	r.agent = agent.New(node.Config{Node: "n", Powers: node.Powers{Switches: true, Switched: []sharing.Mode{sharing.MPS}}}, nil)
	r.edit(sharing.HAMiCore)
	r.agent.Send(node.Scanned{Devices: found})
	r.manager = managerOn(t, &sharing.Inventory{})
	c := &r.manager.cfg
	c.Pods, c.Node = nobody{}, r.agent
	c.Preparers = []modes.Preparer{serves{sharing.HAMiCore}, r.mps}
	r.mps.held = func() []node.Holder { return r.manager.Holders(r.device) }
	r.mover = agent.NewMover(agent.MoverConfig{
		Agent: r.agent, Preparers: c.Preparers, Holders: r.manager, Devices: c.Devices,
		Failed: func(sharing.Mode, bool) {},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.mover.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return r
}

func (r *raceway) edit(m sharing.Mode) {
	r.agent.Send(node.Configured{Settings: node.Settings{Offers: inMode{m}}})
}

// start is the first start of a pod that was placed in a mode; it reports whether
// it was let in, and whether it is to be placed anew.
func (r *raceway) start(t *testing.T, owner string, m sharing.Mode) (in, anew bool) {
	share := sharing.Share{Device: r.device, Mode: m, Memory: sharing.MiBs(1000)}
	pod := podOf(t, ourScheduler, share)
	pod.UID, pod.Name = types.UID(owner), owner
	_, err := r.manager.admitContainer(context.Background(), pod, kubelet.Container{Name: "main", ID: owner}, slotsOf(1))
	var misplaced *modes.Misplaced
	return err == nil, errors.As(err, &misplaced)
}

// Starts in both modes, edits and changes at the same time: whoever is let in has
// the device in the mode he was placed in, for as long as he holds it.
func TestStartsAndModeChangesNeverCross(t *testing.T) {
	r := newRaceway(t)
	var wait sync.WaitGroup
	var in, anew, later atomic.Int64
	stop := make(chan struct{})
	for i, m := range []sharing.Mode{sharing.HAMiCore, sharing.MPS, sharing.HAMiCore, sharing.MPS} {
		wait.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				owner := fmt.Sprintf("uid-%d-%d", i, n)
				let, misplaced := r.start(t, owner, m)
				switch {
				case misplaced:
					anew.Add(1)
				case !let:
					later.Add(1)
				default:
					in.Add(1)
					for range 3 {
						if r.mps.entered.Load() != (m == sharing.MPS) {
							t.Errorf("pod %s was placed in %s; the daemon runs: %v", owner, m, r.mps.entered.Load())
						}
						time.Sleep(20 * time.Microsecond)
					}
					if err := r.manager.cfg.Store.Forget(sharing.Owner(owner)); err != nil {
						t.Error(err)
					}
					r.mover.Released()
				}
			}
		})
	}
	modes := []sharing.Mode{sharing.MPS, sharing.HAMiCore}
	deadline := time.Now().Add(time.Minute)
	for n := 0; n < 200 && time.Now().Before(deadline); n++ {
		r.edit(modes[n%2])
		time.Sleep(2 * time.Millisecond)
	}
	close(stop)
	wait.Wait()
	t.Logf("%d let in, %d to be placed anew, %d to try again", in.Load(), anew.Load(), later.Load())
	if in.Load() == 0 || anew.Load() == 0 {
		t.Error("the test shows nothing")
	}
}
