// SPDX-License-Identifier: Apache-2.0

package oversight

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// witness looks whether containers get what they are given. A runtime that knows no CDI starts them
// all the same: without devices at best, and with every device of the node at worst. It asks the
// runtime, and looks at each container once it has started.
type witness struct {
	cfg *Config
	// again is when containers may start again after one had to be ended for which the runtime is
	// to blame.
	again time.Duration

	mu       sync.Mutex
	expected map[containerKey]expected
	// untilAgain is until when no container starts because one had to be ended.
	untilAgain time.Time
	isTroubled bool
	// isVouched is whether the runtime said of itself, when it was asked last, that it does what
	// our specifications say.
	isVouched bool
}

// containerKey is a container of a pod.
type containerKey struct {
	owner     sharing.Owner
	container string
}

// expected is a container that was prepared and is about to start.
type expected struct {
	allocation string
	before     string // the runtime's id of the container that ran before it, if one did
	bare       int    // how often its processes were seen without the allocation
}

func newWitness(c *Config) *witness {
	return &witness{cfg: c, again: time.Minute, expected: map[containerKey]expected{}}
}

// expectContainer expects a container to start with what it is given.
func (w *witness) expectContainer(pod *corev1.Pod, c *modes.Claim) {
	before, _ := runtimeIDOf(pod, c.Container)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected[containerKey{c.Owner, c.Container}] = expected{allocation: c.ID, before: before}
}

func (w *witness) watchContainers(ctx context.Context) error {
	look, ask := time.NewTicker(time.Second), time.NewTicker(10*time.Second)
	defer look.Stop()
	defer ask.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			w.lookAll()
		case <-ask.C:
			w.askRuntime(ctx)
		}
	}
}

// askRuntime asks the runtime how it is set. What cannot be known changes nothing.
func (w *witness) askRuntime(ctx context.Context) {
	why, err := w.cfg.Runtime.Ignores(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isVouched = why == "" && err == nil
	switch {
	case why != "":
		w.blockStarts(why)
	case err != nil && !errors.Is(err, cdi.ErrRuntimeSilent):
		klog.V(2).InfoS("the container runtime does not say how it is set", "why", err)
	case w.isTroubled && time.Now().After(w.untilAgain):
		w.isTroubled = false
		w.cfg.Agent.Send(node.Recovered{Part: node.PartRuntime})
	}
}

// blockStarts keeps containers from starting. The caller holds the lock.
func (w *witness) blockStarts(why string) {
	w.isTroubled = true
	w.cfg.Agent.Send(node.Troubled{Part: node.PartRuntime, Why: why})
}

func (w *witness) lookAll() {
	w.mu.Lock()
	all := make(map[containerKey]expected, len(w.expected))
	for key, e := range w.expected {
		all[key] = e
	}
	w.mu.Unlock()
	for key, e := range all {
		pod, live := w.cfg.Pods.Pod(key.owner)
		if !live {
			w.dropExpected(key, e)
			continue
		}
		switch seen, id := w.inspectContainer(pod, key.container, e); seen {
		case seenSealed, seenEnded:
			w.dropExpected(key, e)
		case seenUnsealed:
			w.handleUnsealed(pod, key, e, id)
		case seenNothing:
		}
	}
}

func (w *witness) dropExpected(key containerKey, e expected) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.expected[key] == e { // else it is about to start anew
		delete(w.expected, key)
	}
}

// sight is what can be seen of a container that is expected.
type sight uint8

const (
	seenNothing  sight = iota // it has not started yet, or cannot be looked at
	seenSealed                // it has what it was given
	seenUnsealed              // it runs, and does not have it
	seenEnded                 // it has ended before anybody looked
)

// inspectContainer looks at one container, and says what its runtime calls it.
func (w *witness) inspectContainer(pod *corev1.Pod, container string, e expected) (sight, string) {
	id, runs := runtimeIDOf(pod, container)
	switch {
	case id == "" || id == e.before:
		return seenNothing, id
	case !runs:
		return seenEnded, id
	}
	pids, err := w.cfg.processes.pidsOf(id)
	if err != nil {
		klog.V(2).InfoS("the processes of a container cannot be listed", "container", id, "why", err)
		return seenNothing, id
	}
	seen := seenNothing
	for _, pid := range pids {
		points, err := w.cfg.processes.mountPoints(pid)
		switch {
		case err != nil || len(points) == 0: // it has ended
		case cdi.IsSealed(points, e.allocation):
			return seenSealed, id
		default:
			seen = seenUnsealed
		}
	}
	return seen, id
}

// minSightings is in how many looks a container, or a process, has to be seen without what it
// should have: one that the runtime is just bringing into a container has the host's mounts and
// files for a moment.
const minSightings = 2

// What is said of a container that has nothing, and of its node if it is to blame.
const (
	ignoredMessage = "the container runtime started a container without the devices and limits it was given: " +
		"turn on CDI in the runtime (containerd: enable_cdi = true), and restart it"
	unfitMessage = "it was started without the devices and limits it was given, by a runtime that gives them to others: " +
		"a pod with devices cannot have a runtimeClassName whose containers are virtual machines"
)

// handleUnsealed takes in that a container was seen without what it was given. Where the runtime
// vouches for itself this container alone is to blame: else whoever may name a RuntimeClass could
// stop the node.
func (w *witness) handleUnsealed(pod *corev1.Pod, key containerKey, e expected, id string) {
	again := e
	again.bare++
	w.mu.Lock()
	if w.expected[key] == e {
		w.expected[key] = again
	}
	why := unfitMessage
	if again.bare >= minSightings && !w.isVouched {
		why = ignoredMessage
		w.untilAgain = time.Now().Add(w.again)
		w.blockStarts(why) // first, so that it is not started again
	}
	w.mu.Unlock()
	if again.bare < minSightings {
		return
	}
	if err := w.cfg.processes.killAll(id); err != nil {
		klog.ErrorS(err, "a container without its limits cannot be ended", "pod", klog.KObj(pod), "container", key.container)
	}
	if again.bare == minSightings {
		w.cfg.Observer.Unenforced(pod, key.container, why)
	}
}

// runtimeIDOf is what the runtime calls a container, "" if it has none, and whether it runs.
func runtimeIDOf(pod *corev1.Pod, container string) (id string, runs bool) {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if s := &list[i]; s.Name == container {
				_, id, _ := strings.Cut(s.ContainerID, "://")
				return id, s.State.Running != nil
			}
		}
	}
	return "", false
}
