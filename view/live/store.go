// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/view/capture"
)

// absentRetryDelay is how long an optional resource that is not there, or may not be read, is left
// alone.
const absentRetryDelay = time.Minute

// store holds the objects of one resource, trimmed. It implements cache.ReflectorStore.
type store struct {
	owner *Follower
	// what is the resource's name. Optional ones are those of Volcano, which may not be installed,
	// and those that few views show.
	what      string
	optional  bool
	reflector *cache.Reflector

	mu      sync.Mutex
	objects map[string]any
	read    bool
	// absent: the resource is not there, or may not be read (forbidden). err is why it cannot be
	// followed now.
	absent, forbidden bool
	err               error
}

type watchFunc = func(context.Context, metav1.ListOptions) (watch.Interface, error)

func newStore(f *Follower, what string, optional bool, kind runtime.Object, list cache.ListWithContextFunc, follow watchFunc) *store {
	s := &store{owner: f, what: what, optional: optional, objects: map[string]any{}}
	s.reflector = cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			objects, err := list(ctx, o)
			s.recordResult(ctx, "list", err)
			return objects, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := follow(ctx, o)
			s.recordResult(ctx, "watch", err)
			return w, err
		},
	}, kind, s, cache.ReflectorOptions{Name: "view " + what})
	return s
}

// listAndWatch lists and watches until ctx ends. The reflector lists again after an error, later
// and later.
func (s *store) listAndWatch(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.reflector.ListAndWatchWithContext(ctx); err != nil && s.lastError() == nil {
			s.recordResult(ctx, "follow", err)
		}
		pause := time.Second
		if s.isAbsent() {
			pause = absentRetryDelay
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (s *store) recordResult(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // what is too old is listed anew
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	missing := apierrors.IsNotFound(err)
	if s.optional && (missing || apierrors.IsForbidden(err)) {
		if !s.absent {
			defer s.owner.signalChange()
		}
		s.absent, s.forbidden, s.err = true, !missing, nil
		return
	}
	if s.err = err; err != nil {
		s.err = fmt.Errorf("%s %s: %w", verb, s.what, err)
	}
}

func (s *store) isAbsent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.absent
}

func (s *store) isRead() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read || s.absent, s.err
}

func (s *store) lastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *store) appendTo(state *capture.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forbidden {
		state.Forbidden = append(state.Forbidden, "list "+s.what)
	}
	for _, object := range s.objects {
		switch o := object.(type) {
		case *corev1.Node:
			state.Nodes = append(state.Nodes, o)
		case *corev1.Pod:
			state.Pods = append(state.Pods, o)
		case *schedulingv1beta1.Queue:
			state.Queues = append(state.Queues, o)
		case *schedulingv1beta1.PodGroup:
			state.Groups = append(state.Groups, o)
		case *corev1.ResourceQuota:
			state.Quotas = append(state.Quotas, o)
		}
	}
}

func (s *store) Add(object any) error { return s.putObject(object) }

func (s *store) Update(object any) error { return s.putObject(object) }

func (s *store) putObject(object any) error {
	key, err := cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		return err
	}
	kept, keep := capture.Trim(object)
	s.mu.Lock()
	before, had := s.objects[key]
	if keep {
		s.objects[key] = kept
	} else {
		delete(s.objects, key)
	}
	s.mu.Unlock()
	// Most of what is written into nodes and pods, a node's signs of life for instance, is not
	// kept.
	if keep != had || keep && !equality.Semantic.DeepEqual(before, kept) {
		s.owner.signalChange()
	}
	return nil
}

func (s *store) Delete(object any) error {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	_, had := s.objects[key]
	delete(s.objects, key)
	s.mu.Unlock()
	if had {
		s.owner.signalChange()
	}
	return nil
}

func (s *store) Replace(list []any, _ string) error {
	objects := make(map[string]any, len(list))
	var mistakes []error
	for _, object := range list {
		kept, keep := capture.Trim(object)
		if !keep {
			continue
		}
		key, err := cache.MetaNamespaceKeyFunc(object)
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		objects[key] = kept
	}
	s.mu.Lock()
	s.objects, s.read, s.absent, s.forbidden = objects, true, false, false
	s.mu.Unlock()
	s.owner.signalChange()
	return errors.Join(mistakes...)
}

// Resync implements cache.ReflectorStore: there is nothing to do.
func (s *store) Resync() error { return nil }
