// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"deviceshare/config"
)

// objectKey names one ConfigMap that is followed.
type objectKey struct{ namespace, name string }

// object is the part of a ConfigMap that matters.
type object struct {
	version string
	data    map[string]string
}

// Run follows the ConfigMaps until the context ends. It returns an error only if
// it could not start; a ConfigMap that cannot be read, for lack of permission for
// example, is reported as a problem and tried again.
func (w *Watcher) Run(ctx context.Context) error {
	var settled []cache.InformerSynced
	var followed []*follower
	var working sync.WaitGroup
	for _, name := range []string{w.options.DeviceName, w.options.NodeName} {
		for _, namespace := range w.options.Namespaces {
			f, err := w.newFollower(objectKey{namespace, name})
			if err != nil {
				return err
			}
			working.Go(func() { f.informer.RunWithContext(ctx) })
			followed = append(followed, f)
			settled = append(settled, func() bool { return w.isListedOrForbidden(f.key, f.listed) })
		}
	}
	if cache.WaitForCacheSync(ctx.Done(), settled...) {
		for _, f := range followed {
			if f.listed() {
				w.markListed(f.key)
				continue
			}
			working.Go(func() {
				if cache.WaitForCacheSync(ctx.Done(), f.listed) {
					w.markListed(f.key)
				}
			})
		}
		w.mu.Lock()
		w.ready = true
		w.applyConfigMaps()
		w.mu.Unlock()
		close(w.synced)
		<-ctx.Done()
	}
	working.Wait()
	return nil
}

// follower is the informer of a single object. A factory has one informer for each
// type, and here are several: a role may name the objects that can be read, and only a
// watch of one object by its name is allowed then.
type follower struct {
	key      objectKey
	informer cache.SharedIndexInformer
	listed   cache.InformerSynced
}

// markListed notes that it is known whether there is an object.
func (w *Watcher) markListed(k objectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed[k] = true
	w.clearReadFailure(k)
	if w.ready {
		w.applyConfigMaps()
	}
}

func (w *Watcher) newFollower(k objectKey) (*follower, error) {
	informer := coreinformers.NewFilteredConfigMapInformer(w.options.Client, k.namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", k.name).String()
	})
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		w.reportReadFailure(ctx, k, err)
	})
	if err != nil {
		return nil, fmt.Errorf("follow ConfigMap %s/%s: %w", k.namespace, k.name, err)
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.recordObject(k, o) },
		UpdateFunc: func(_, o any) { w.recordObject(k, o) },
		DeleteFunc: func(o any) { w.dropObject(k, o) },
	})
	if err != nil {
		return nil, fmt.Errorf("follow ConfigMap %s/%s: %w", k.namespace, k.name, err)
	}
	return &follower{key: k, informer: informer, listed: registration.HasSynced}, nil
}

// recordObject notes a version of an object. Until all have been listed nothing is
// applied: the object that counts may come last.
func (w *Watcher) recordObject(k objectKey, o any) {
	m, ok := o.(*corev1.ConfigMap)
	if !ok || m.Name != k.name || m.Namespace != k.namespace {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[k] = object{version: m.ResourceVersion, data: m.Data}
	w.clearReadFailure(k)
	if w.ready {
		w.applyConfigMaps()
	}
}

func (w *Watcher) dropObject(k objectKey, o any) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	if m, ok := o.(*corev1.ConfigMap); ok && m.Name != k.name {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, k)
	if w.ready {
		w.applyConfigMaps()
	}
}

// clearReadFailure notes that an object could be read after all. The lock is held.
func (w *Watcher) clearReadFailure(k objectKey) {
	delete(w.unreadable, k)
	delete(w.forbidden, k)
}

// reportReadFailure reports that an object cannot be listed or watched. A watch that ends is
// no failure: it always ends some time and is begun anew.
func (w *Watcher) reportReadFailure(ctx context.Context, k objectKey, err error) {
	if ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forbidden[k] = apierrors.IsForbidden(err)
	if w.unreadable[k] == err.Error() {
		return
	}
	w.unreadable[k] = err.Error()
	if w.options.Problem != nil {
		w.options.Problem(Report{
			Source:   Source{Namespace: k.namespace, Name: k.name},
			Problems: []config.Problem{{Message: "cannot be read: " + err.Error()}},
		})
	}
}

// isListedOrForbidden reports whether it is known what an object says, or that nobody may know.
func (w *Watcher) isListedOrForbidden(k objectKey, listed cache.InformerSynced) bool {
	if listed() {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.forbidden[k]
}
