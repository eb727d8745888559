// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// Release takes back everything that was made for an owner. It does nothing while
// the pod is live. The record goes last, so that a failure is tried again. Owners
// may be released at the same time; a start of the same owner that hangs is waited
// for until ctx ends, which is an error.
func (m *Manager) Release(ctx context.Context, o sharing.Owner) error {
	unlock, err := m.starts.LockContext(ctx, string(o))
	if err != nil {
		err = fmt.Errorf("release owner %s: a start of it, or another release, is not over: %w", o, err)
		m.cfg.Observer.Released(o, err)
		return err
	}
	defer unlock()
	if _, live := m.cfg.Pods.Pod(o); live {
		return nil
	}
	m.waits.endWait(o)
	err = m.releaseOwner(ctx, o)
	m.cfg.Observer.Released(o, err)
	return err
}

// releaseAll releases owners, each aside, so that one that hangs holds up no other.
func (m *Manager) releaseAll(ctx context.Context, owners []sharing.Owner) error {
	type result struct {
		owner sharing.Owner
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	results := make(chan result, len(owners))
	for _, o := range owners {
		go func() { results <- result{o, m.Release(ctx, o)} }()
	}
	var failed []error
	for pending := slices.Clone(owners); len(pending) > 0; {
		select {
		case r := <-results:
			pending = slices.DeleteFunc(pending, func(o sharing.Owner) bool { return o == r.owner })
			failed = append(failed, r.err)
		case <-ctx.Done():
			failed = append(failed, fmt.Errorf("the releases of owners %v are not over: %w", pending, ctx.Err()))
			return errors.Join(failed...)
		}
	}
	return errors.Join(failed...)
}

func (m *Manager) releaseOwner(ctx context.Context, o sharing.Owner) error {
	records := m.cfg.Store.Of(o)
	var failed []error
	for _, r := range records {
		failed = append(failed, m.cfg.Specs.Remove(r.ID))
	}
	for _, p := range m.cfg.Preparers {
		failed = append(failed, p.Unprepare(ctx, o))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("release owner %s: %w", o, err)
	}
	if err := m.cfg.Store.Forget(o); err != nil {
		return fmt.Errorf("release owner %s: %w", o, err)
	}
	if len(records) > 0 {
		klog.InfoS("devices released", "owner", o, "pod", records[0].Namespace+"/"+records[0].Pod, "allocations", len(records))
	}
	return nil
}

// readHeldSlots is the kubelet's record, and whether it could be read.
func (m *Manager) readHeldSlots() ([]kubelet.Held, bool) {
	record, err := m.cfg.Kubelet.ReadCheckpoint()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		klog.InfoS("the kubelet has no record yet; owners without a name are kept")
	case err != nil:
		klog.ErrorS(err, "the kubelet's own record cannot be used; owners without a name are kept")
	}
	return record.Of(m.cfg.Resource.ResourceName()), err == nil
}

// Reconcile compares checkpoint, host, kubelet and API server: it releases owners
// that are gone, records live ones that a lost checkpoint forgot, and removes
// specifications of nobody. The pods must be known before it is called.
func (m *Manager) Reconcile(ctx context.Context) error {
	held, known := m.readHeldSlots()
	m.recallAllocations(held)
	var failed []error
	var over []sharing.Owner
	for owner, name := range m.preparedOwners() {
		gone, err := m.isOwnerGone(ctx, owner, name, held, known)
		if gone {
			over = append(over, owner)
		}
		failed = append(failed, err)
	}
	failed = append(failed, m.releaseAll(ctx, over), m.removeOrphanSpecs())
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("reconcile: %w", err)
	}
	return nil
}

// Repair reconciles at the start and every 5 minutes until ctx ends. failed is told
// about every error.
func (m *Manager) Repair(ctx context.Context, failed func(error)) error {
	for {
		if err := m.Reconcile(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(5 * time.Minute):
		}
	}
}

// preparedOwners are all owners that something was made for, with their pods' names where
// the checkpoint has them.
func (m *Manager) preparedOwners() map[sharing.Owner]types.NamespacedName {
	owners := map[sharing.Owner]types.NamespacedName{}
	for _, p := range m.cfg.Preparers {
		l, ok := p.(modes.OwnerLister)
		if !ok {
			continue
		}
		found, err := l.Owners()
		if err != nil {
			klog.ErrorS(err, "cannot look for what was prepared", "mode", p.Mode())
		}
		for _, o := range found {
			owners[o] = types.NamespacedName{}
		}
	}
	for _, r := range m.cfg.Store.All() {
		owners[r.Owner] = types.NamespacedName{Namespace: r.Namespace, Name: r.Pod}
	}
	return owners
}

// isOwnerGone reports that a pod certainly ended. The watch alone is not trusted, since
// it may start from an old state: the API server is asked by name, and an owner
// without a name must be unknown to the kubelet as well.
func (m *Manager) isOwnerGone(ctx context.Context, o sharing.Owner, name types.NamespacedName, held []kubelet.Held, heldKnown bool) (bool, error) {
	if _, live := m.cfg.Pods.Pod(o); live {
		return false, nil
	}
	if name.Name == "" {
		known := slices.ContainsFunc(held, func(h kubelet.Held) bool { return h.Owner == o })
		return heldKnown && !known, nil
	}
	return m.hasPodEnded(ctx, o, name)
}

// hasPodEnded asks the API server whether a pod is gone or has run to its end.
func (m *Manager) hasPodEnded(ctx context.Context, o sharing.Owner, name types.NamespacedName) (bool, error) {
	pod, err := m.cfg.Pods.Fetch(ctx, name)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return sharing.Owner(pod.UID) != o || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed, nil
}

// recallAllocations records live allocations that the checkpoint does not know: their pods
// run with them. What cannot be read is left to the container's next start.
func (m *Manager) recallAllocations(held []kubelet.Held) {
	known := map[string]bool{}
	for _, r := range m.cfg.Store.All() {
		known[r.ID] = true
	}
	specs, err := m.cfg.Specs.IDs()
	if !m.cfg.Node.State().Scanned() || err != nil {
		return
	}
	for _, h := range held {
		pod, live := m.cfg.Pods.Pod(h.Owner)
		id, ours := allocationOf(h.CDI)
		if !live || !ours || known[id] || !slices.Contains(specs, id) {
			continue
		}
		if err := m.recallOne(pod, h, id); err != nil {
			klog.ErrorS(err, "cannot record a running allocation", "pod", klog.KObj(pod), "container", h.Container, "allocation", id)
		}
	}
}

// allocationOf returns the one allocation id among CDI names; false if there is none.
func allocationOf(names []string) (id string, ok bool) {
	for _, name := range names {
		if id, ok = cdi.ID(name); ok {
			return id, true
		}
	}
	return "", false
}

// recallOne records an allocation as it is, whether or not it could be made now.
func (m *Manager) recallOne(pod *corev1.Pod, h kubelet.Held, id string) error {
	state, err := m.scannedState()
	if err != nil {
		return err
	}
	terms := m.cfg.Terms.Terms()
	placement, err := readPlacement(pod, state.Inventory(), nil, terms)
	if err != nil {
		return err
	}
	given, refusal := node.ClaimOf(state, node.Ask{Container: h.Container, Slots: len(h.Slots), Placement: placement})
	if refusal != nil {
		return fmt.Errorf("container %s: %s", h.Container, refusal)
	}
	c := newClaim(pod, kubelet.Container{Name: h.Container, ID: id}, &given, terms)
	klog.InfoS("running allocation recorded again", "pod", klog.KObj(pod), "container", h.Container, "allocation", id)
	return m.cfg.Store.Put(newRecord(&c, h.Slots))
}

// removeOrphanSpecs removes specifications that no record names. A live container whose
// specification is lost gets it again at its next start.
func (m *Manager) removeOrphanSpecs() error {
	ids, err := m.cfg.Specs.IDs()
	if err != nil {
		return err
	}
	var failed []error
	for _, id := range ids {
		// Read anew each time: a start records before it writes.
		if !slices.ContainsFunc(m.cfg.Store.All(), func(r checkpoint.Record) bool { return r.ID == id }) {
			failed = append(failed, m.cfg.Specs.Remove(id))
		}
	}
	return errors.Join(failed...)
}
