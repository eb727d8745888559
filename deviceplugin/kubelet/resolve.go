// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/sharing"
)

// ErrTwoOwners: the kubelet recorded a slot for two live pods. Which one is
// starting cannot be told, so neither may.
var ErrTwoOwners = errors.New("the kubelet gave one slot to two pods")

// CheckpointReader reads the kubelet's checkpoint of devices.
type CheckpointReader interface {
	ReadCheckpoint() (Record, error)
}

// Pods is what is known about the pods of this node.
type Pods interface {
	// Await returns the name of a live pod. It waits for a pod that is not known
	// yet until ctx ends.
	Await(ctx context.Context, owner sharing.Owner) (types.NamespacedName, bool)
	// Live returns all live pods.
	Live() map[sharing.Owner]types.NamespacedName
}

// Memory remembers which allocation was made for which slots.
type Memory interface {
	// Remembered is the allocation id of a container with exactly these slots;
	// false if there is none.
	Remembered(owner sharing.Owner, container string, slots []string) (id string, ok bool)
}

// Source is one of the kubelet's records.
type Source string

// The sources.
const (
	SourceCheckpoint   Source = "checkpoint"
	SourcePodResources Source = "podresources"
)

// Identity says who is starting.
type Identity struct {
	Owner sharing.Owner
	Pod   types.NamespacedName
	// Containers hold exactly the slots of the call. They are more than one when
	// app containers took over the slots of a finished init container; which of
	// them is starting is not told, and need not be: each has its own id.
	Containers []Container
}

// Container is one container with its allocation.
type Container struct {
	Name string
	// ID is the allocation id, if IsOurs.
	ID string
}

// IsOurs reports whether this device plugin gave the answer that the kubelet keeps, and
// not another one.
func (c Container) IsOurs() bool { return c.ID != "" }

// Resolver finds identities. It is safe for concurrent use.
type Resolver struct {
	Checkpoint CheckpointReader
	// Resources is the kubelet's podresources API.
	Resources Resources
	Pods      Pods
	// Resource is that of the slots.
	Resource Resource
	// Memory is asked only when the kubelet's checkpoint cannot be read.
	Memory Memory
	// Source is told at every start whether a source could be used (nil), or why it
	// could not though another one serves. It may be nil.
	Source func(s Source, err error)
	// Patience bounds how long to wait for a pod that is not known yet; 2 s
	// when zero.
	Patience time.Duration

	mu sync.Mutex
	// absent are owners in the kubelet's record that were waited for in vain. They have ended, and
	// the kubelet forgets them only when it allocates slots the next time.
	absent map[sharing.Owner]bool
}

// Resolve returns who holds exactly these slots. Any doubt is an error.
func (r *Resolver) Resolve(ctx context.Context, slots []string) (Identity, error) {
	slots = slices.Sorted(slices.Values(slots))
	if len(slots) == 0 {
		return Identity{}, errors.New("the kubelet named no slots")
	}
	record, checkpointErr := r.Checkpoint.ReadCheckpoint()
	r.reportSource(SourceCheckpoint, checkpointErr)
	if checkpointErr == nil {
		return r.fromCheckpoint(ctx, slots, record.Of(r.Resource.ResourceName()))
	}
	id, err := r.fromResources(ctx, slots)
	if err != nil {
		return Identity{}, fmt.Errorf("find the owner of slots %s: %w (and %w)", strings.Join(slots, ","), err, checkpointErr)
	}
	return id, nil
}

func (r *Resolver) reportSource(s Source, err error) {
	if r.Source != nil {
		r.Source(s, err)
	}
}

// fromCheckpoint takes the owner from the checkpoint and asks the podresources API
// to confirm.
func (r *Resolver) fromCheckpoint(ctx context.Context, slots []string, held []Held) (Identity, error) {
	owners := map[sharing.Owner]bool{}
	for _, h := range held {
		if shareSlot(h.Slots, slots) {
			owners[h.Owner] = true
		}
	}
	id, err := r.liveOwner(ctx, slots, owners)
	if err != nil {
		return Identity{}, err
	}
	for _, h := range held {
		if h.Owner == id.Owner && slices.Equal(h.Slots, slots) {
			c, err := r.readAllocation(h)
			if err != nil {
				return Identity{}, err
			}
			id.Containers = append(id.Containers, c)
		}
	}
	if len(id.Containers) == 0 {
		return Identity{}, fmt.Errorf("pod %s holds the slots %s only together with others, which no container start can ask for", id.Pod, strings.Join(slots, ","))
	}
	return id, r.confirmOwner(ctx, id, slots)
}

// readAllocation reads the allocation out of what the kubelet kept.
func (r *Resolver) readAllocation(h Held) (Container, error) {
	c := Container{Name: h.Container}
	for _, name := range h.CDI {
		id, ours := cdi.ID(name)
		switch {
		case !ours:
			continue
		case c.IsOurs():
			return Container{}, fmt.Errorf("container %s of pod %s has two allocations, %s and %s", h.Container, h.Owner, c.ID, id)
		}
		c.ID = id
	}
	if !c.IsOurs() && !h.Other && len(h.CDI) == 0 {
		return Container{}, fmt.Errorf("container %s of pod %s was allocated devices with an empty answer, it would start without any: delete the pod", h.Container, h.Owner)
	}
	return c, nil
}

// awaitPod returns the name of a live pod. It waits for one that is not known yet until ctx ends,
// and for the same one only once.
func (r *Resolver) awaitPod(ctx context.Context, owner sharing.Owner) (types.NamespacedName, bool) {
	r.mu.Lock()
	wasAbsent := r.absent[owner]
	r.mu.Unlock()
	canWait := ctx.Err() == nil // other owners may have used the time up
	if wasAbsent {
		over, cancel := context.WithCancel(ctx)
		cancel()
		return r.Pods.Await(over, owner)
	}
	name, ok := r.Pods.Await(ctx, owner)
	if !ok && canWait && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.absent) >= mostAbsent || r.absent == nil {
			r.absent = map[sharing.Owner]bool{}
		}
		r.absent[owner] = true
	}
	return name, ok
}

// mostAbsent bounds how many absent owners are remembered.
const mostAbsent = 1000

// liveOwner picks the one live pod among owners.
func (r *Resolver) liveOwner(ctx context.Context, slots []string, owners map[sharing.Owner]bool) (Identity, error) {
	patience := r.Patience
	if patience == 0 {
		patience = 2 * time.Second
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var live []Identity
	for owner := range owners {
		if name, ok := r.awaitPod(wait, owner); ok {
			live = append(live, Identity{Owner: owner, Pod: name})
		}
	}
	switch {
	case len(live) == 1:
		return live[0], nil
	case len(live) > 1:
		slices.SortFunc(live, func(a, b Identity) int { return strings.Compare(a.Pod.String(), b.Pod.String()) })
		return Identity{}, fmt.Errorf("%w: slots %s belong to %s and %s; delete one of them (kubernetes#136021)",
			ErrTwoOwners, strings.Join(slots, ","), live[0].Pod, live[1].Pod)
	case len(owners) == 0:
		return Identity{}, fmt.Errorf("the kubelet's checkpoint has no owner of slots %s", strings.Join(slots, ","))
	case len(owners) > 1:
		return Identity{}, fmt.Errorf("none of the %d pods recorded for slots %s is known to the API server", len(owners), strings.Join(slots, ","))
	}
	// The pod is too new for the informer: the kubelet knows its name.
	for owner := range owners {
		u, err := r.findPodBySlots(ctx, slots)
		if err != nil {
			return Identity{}, fmt.Errorf("pod %s is not known to the API server's watch yet: %w", owner, err)
		}
		return Identity{Owner: owner, Pod: u.Pod}, nil
	}
	return Identity{}, errors.New("unreachable")
}

// confirmOwner asks the kubelet about the pod. Init containers are not in its answer,
// so silence about the slots is no contradiction; another container with them is.
func (r *Resolver) confirmOwner(ctx context.Context, id Identity, slots []string) error {
	usage, err := r.Resources.Get(ctx, id.Pod)
	if errors.Is(err, ErrNoPodResources) {
		r.reportSource(SourcePodResources, err)
		return nil // the checkpoint alone is exact
	}
	if err != nil {
		return err
	}
	r.reportSource(SourcePodResources, nil)
	for container, has := range usage.Slots {
		known := slices.ContainsFunc(id.Containers, func(c Container) bool { return c.Name == container })
		if slices.Equal(has, slots) && !known {
			return fmt.Errorf("the kubelet says container %s of pod %s has slots %s, its checkpoint does not", container, id.Pod, strings.Join(slots, ","))
		}
	}
	return nil
}

// fromResources finds the owner without the checkpoint. It serves app containers
// and sidecars only.
func (r *Resolver) fromResources(ctx context.Context, slots []string) (Identity, error) {
	usage, err := r.findPodBySlots(ctx, slots)
	if err != nil {
		return Identity{}, err
	}
	id := Identity{Pod: usage.Pod}
	for owner, name := range r.Pods.Live() {
		if name == usage.Pod {
			id.Owner = owner
		}
	}
	if id.Owner == "" {
		return Identity{}, fmt.Errorf("pod %s is not known to the API server's watch yet", usage.Pod)
	}
	for container, has := range usage.Slots {
		if !slices.Equal(has, slots) {
			continue
		}
		remembered, ok := r.Memory.Remembered(id.Owner, container, slots)
		if !ok {
			return Identity{}, fmt.Errorf("container %s of pod %s: nothing is remembered about its allocation", container, usage.Pod)
		}
		id.Containers = append(id.Containers, Container{Name: container, ID: remembered})
	}
	if len(id.Containers) != 1 {
		return Identity{}, fmt.Errorf("pod %s: %d containers hold the slots, want one", usage.Pod, len(id.Containers))
	}
	return id, nil
}

func (r *Resolver) findPodBySlots(ctx context.Context, slots []string) (PodSlots, error) {
	all, err := r.Resources.List(ctx)
	if err != nil {
		return PodSlots{}, err
	}
	var found []PodSlots
	for _, u := range all {
		for _, has := range u.Slots {
			if shareSlot(has, slots) {
				found = append(found, u)
				break
			}
		}
	}
	switch len(found) {
	case 0:
		return PodSlots{}, fmt.Errorf("no pod holds slots %s (init containers are not listed)", strings.Join(slots, ","))
	case 1:
		return found[0], nil
	}
	return PodSlots{}, fmt.Errorf("%w: slots %s belong to %s and %s", ErrTwoOwners, strings.Join(slots, ","), found[0].Pod, found[1].Pod)
}

func shareSlot(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}
