// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// farewells remembers how pods looked when they were deleted. It is safe for concurrent use.
type farewells struct {
	mu sync.Mutex
	// last is by UID; nil for a pod that was deleted while the API server could not be watched.
	last map[types.UID]*corev1.Pod
}

// follow watches the pods of the namespace until ctx ends.
func (f *farewells) follow(ctx context.Context, client kubernetes.Interface) {
	pods := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(Namespace)).Core().V1().Pods().Informer()
	_, _ = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: f.note}) // fails only after the end
	pods.Run(ctx.Done())
}

// note takes what the informer says of a pod that is gone.
func (f *farewells) note(of any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch of := of.(type) {
	case *corev1.Pod:
		f.last[of.UID] = of
	case cache.DeletedFinalStateUnknown:
		if stale, isPod := of.Obj.(*corev1.Pod); isPod {
			f.last[stale.UID] = nil
		}
	}
}

// unwatched is how long to wait for the news of a pod that is gone. None come of one that was
// created and deleted between two watches.
const unwatched = time.Minute

// of returns how a pod looked that is gone, or nil if nobody could look.
func (f *farewells) of(ctx context.Context, uid types.UID) *corev1.Pod {
	ctx, cancel := context.WithTimeout(ctx, unwatched)
	defer cancel()
	for ; ctx.Err() == nil; pause(ctx, 50*time.Millisecond) {
		f.mu.Lock()
		p, known := f.last[uid]
		f.mu.Unlock()
		if known {
			return p
		}
	}
	return nil
}
