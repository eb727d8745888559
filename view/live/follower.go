// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	volcano "volcano.sh/apis/pkg/client/clientset/versioned"

	"deviceshare/view/capture"
)

// configEvery is how often the device configuration is read: the role of the views gives no right
// to watch it.
const configEvery = 15 * time.Second

// Follower follows one cluster. Safe for concurrent use.
type Follower struct {
	core            kubernetes.Interface
	configNamespace string
	stores          []*store
	changed         chan struct{}

	mu sync.Mutex
	// config is the last reading of the device configuration.
	config reading
}

// reading is what came of reading the device configuration.
type reading struct {
	done      bool
	text      *string
	forbidden []string
	err       error
}

// New returns a follower. It reads nothing before Run.
func New(core kubernetes.Interface, batch volcano.Interface, configNamespace string) *Follower {
	f := &Follower{core: core, configNamespace: configNamespace, changed: make(chan struct{}, 1)}
	nodes, pods := core.CoreV1().Nodes(), core.CoreV1().Pods(metav1.NamespaceAll)
	quotas := core.CoreV1().ResourceQuotas(metav1.NamespaceAll)
	queues, groups := batch.SchedulingV1beta1().Queues(), batch.SchedulingV1beta1().PodGroups(metav1.NamespaceAll)
	f.stores = []*store{
		newStore(f, "nodes", false, &corev1.Node{}, untypedLister(nodes.List), nodes.Watch),
		newStore(f, "pods", false, &corev1.Pod{}, untypedLister(pods.List), pods.Watch),
		newStore(f, "queues.scheduling.volcano.sh", true, &schedulingv1beta1.Queue{}, untypedLister(queues.List), queues.Watch),
		newStore(f, "podgroups.scheduling.volcano.sh", true, &schedulingv1beta1.PodGroup{}, untypedLister(groups.List), groups.Watch),
		newStore(f, "resourcequotas", true, &corev1.ResourceQuota{}, untypedLister(quotas.List), quotas.Watch),
	}
	return f
}

func untypedLister[T runtime.Object](list func(context.Context, metav1.ListOptions) (T, error)) cache.ListWithContextFunc {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

// Run follows the cluster until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	var parts sync.WaitGroup
	for _, s := range f.stores {
		parts.Go(func() { s.listAndWatch(ctx) })
	}
	parts.Go(func() { f.followConfig(ctx) })
	parts.Wait()
}

// followConfig reads the device configuration every so often.
func (f *Follower) followConfig(ctx context.Context) {
	tick := time.NewTicker(configEvery)
	defer tick.Stop()
	for {
		var s capture.State
		err := ReadConfig(ctx, f.core, f.configNamespace, &s)
		f.mu.Lock()
		before := f.config
		f.config = reading{done: true, text: s.DeviceConfig, forbidden: s.Forbidden, err: err}
		if err != nil { // what was known before is better than the defaults
			f.config.text, f.config.forbidden = before.text, before.forbidden
		}
		same := before.done && equalText(before.text, f.config.text) && slices.Equal(before.forbidden, f.config.forbidden)
		f.mu.Unlock()
		if !same {
			f.signalChange()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func equalText(a, b *string) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func (f *Follower) signalChange() {
	select {
	case f.changed <- struct{}{}:
	default: // somebody has not looked yet at what was changed before
	}
}

// Changed receives when the state is another one than State has last returned.
func (f *Follower) Changed() <-chan struct{} { return f.changed }

// Read reports whether everything was read once: what is not there, or may not be read and need not
// be, counts as read. The error is why something was not.
func (f *Follower) Read() (bool, error) {
	for _, s := range f.stores {
		if read, err := s.isRead(); !read {
			return false, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config.done && f.config.err == nil, f.config.err
}

// Wait returns once everything was read. It fails when the API server refuses a right that is
// needed, or when ctx ends.
func (f *Follower) Wait(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		read, err := f.Read()
		switch {
		case read:
			return nil
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			return err
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = context.Cause(ctx)
			}
			return fmt.Errorf("read the cluster: %w", err)
		case <-tick.C:
		}
	}
}

// Trouble is why the state may be old, "" if it is not.
func (f *Follower) Trouble() string {
	for _, s := range f.stores {
		if err := s.lastError(); err != nil {
			return err.Error()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.config.err != nil {
		return f.config.err.Error()
	}
	return ""
}

// State is the cluster now.
func (f *Follower) State() *capture.State {
	s := &capture.State{Taken: time.Now().UTC().Truncate(time.Second)}
	for _, from := range f.stores {
		from.appendTo(s)
	}
	f.mu.Lock()
	s.DeviceConfig = f.config.text
	s.Forbidden = append(s.Forbidden, f.config.forbidden...)
	f.mu.Unlock()
	s.Sort()
	return s
}
