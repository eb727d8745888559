// SPDX-License-Identifier: Apache-2.0

package binding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/claims"
	"deviceshare/sharing/claimspec/coreclaim"
)

// mostConflicts is how often a claim is read again because somebody else changed it meanwhile: the
// claim controller and users do, each once or twice.
const mostConflicts = 5

// bindClaim gives a pod the claim that a session decided on, if it is one with a claim of our
// driver.
func (b *Binder) bindClaim(ctx context.Context, client kubernetes.Interface, t *api.TaskInfo) (isClaimed bool, err error) {
	defer b.claims.LockClaimOf(t.Pod.UID)()
	w, isClaimed, err := b.claims.BeginBind(t.Pod, t.NodeName)
	if !isClaimed {
		return false, nil
	}
	defer b.claims.EndBind(t.Pod.UID)
	if err == nil {
		err = b.reserveClaim(ctx, client, t.Pod, &w)
	}
	return true, err
}

// reserveClaim gives a pod its claim, before the pod is bound: it writes the allocation, unless the
// claim has one, together with the pod's place in status.reservedFor. The claim's lock is held.
func (b *Binder) reserveClaim(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, w *claims.Write) (err error) {
	defer func() {
		if err != nil && w.Decision != nil {
			b.claims.Fail(w.Owner, pod.UID) // unless the answer was lost
		}
	}()
	object := w.Object
	for range mostConflicts {
		updated, err := b.writeClaim(ctx, client, pod, w, object)
		if err == nil {
			b.claims.Observe(updated)
			return nil
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("reserve claim %s: %w", w.Name, err)
		}
		if object, err = client.ResourceV1().ResourceClaims(w.Name.Namespace).Get(ctx, w.Name.Name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("reserve claim %s: read it again: %w", w.Name, err)
		}
		if object.UID != types.UID(w.Owner) {
			return fmt.Errorf("reserve claim %s: it was deleted and made again", w.Name)
		}
		b.claims.Observe(object)
	}
	return fmt.Errorf("reserve claim %s: somebody changed it %d times meanwhile", w.Name, mostConflicts)
}

// writeClaim does what is left to do for a pod, based on a claim as it was seen.
func (b *Binder) writeClaim(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, w *claims.Write, object *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	consumer := resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID}
	if object.Status.Allocation != nil {
		return joinClaim(ctx, client, w, object, consumer)
	}
	if w.Decision == nil {
		return nil, errors.New("it lost its devices before the pod was bound")
	}
	updated, err := b.allocateClaim(ctx, client, w, object, consumer)
	switch {
	case err == nil && updated.Status.Allocation == nil:
		err = errors.New("the API server accepted the allocation and did not keep it")
	case err != nil && !isRefused(err):
		b.claims.Lose(w.Owner)
		b.resolveAnswer(client, w)
	}
	return updated, err
}

// isRefused reports whether an error of the API server means that it wrote nothing.
func isRefused(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) ||
		apierrors.IsUnauthorized(err) || apierrors.IsBadRequest(err) || apierrors.IsTooManyRequests(err) || apierrors.IsMethodNotSupported(err)
}

// joinClaim adds a pod to those that may use an allocated claim. The patch merges lists, so that
// pods which are added at the same time lose nothing. An API server refuses it for a claim that has
// lost its allocation meanwhile.
func joinClaim(ctx context.Context, client kubernetes.Interface, w *claims.Write, object *resourcev1.ResourceClaim, consumer resourcev1.ResourceClaimConsumerReference) (*resourcev1.ResourceClaim, error) {
	p, err := coreclaim.ReadPlacement(object)
	if err != nil {
		return nil, err
	}
	if p.Placement.Node != w.Node {
		return nil, fmt.Errorf("it has devices on node %s", p.Placement.Node)
	}
	if slices.Contains(object.Status.ReservedFor, consumer) {
		return object, nil
	}
	patch := map[string]any{
		"metadata": map[string]any{"uid": object.UID},
		"status":   map[string]any{"reservedFor": []resourcev1.ResourceClaimConsumerReference{consumer}},
	}
	return patchClaim(ctx, client, object, types.StrategicMergePatchType, patch, "status")
}

// allocateClaim writes the finalizer, without which the claim controller never takes an allocation
// back, and then the allocation: an update of a status changes no metadata.
func (b *Binder) allocateClaim(ctx context.Context, client kubernetes.Interface, w *claims.Write, object *resourcev1.ResourceClaim, consumer resourcev1.ResourceClaimConsumerReference) (*resourcev1.ResourceClaim, error) {
	b.claims.BeginWrite(w.Owner, object)
	if !slices.Contains(object.Finalizers, resourcev1.Finalizer) {
		patch := map[string]any{"metadata": map[string]any{
			"uid": object.UID, "resourceVersion": object.ResourceVersion, "finalizers": append(slices.Clone(object.Finalizers), resourcev1.Finalizer),
		}}
		updated, err := patchClaim(ctx, client, object, types.MergePatchType, patch)
		if err != nil {
			return nil, err
		}
		object = updated
		b.claims.BeginWrite(w.Owner, object)
	}
	patch := map[string]any{
		"metadata": map[string]any{"uid": object.UID, "resourceVersion": object.ResourceVersion},
		"status": map[string]any{
			"allocation": w.Decision.Allocation, "reservedFor": []resourcev1.ResourceClaimConsumerReference{consumer},
		},
	}
	return patchClaim(ctx, client, object, types.MergePatchType, patch, "status")
}

func patchClaim(ctx context.Context, client kubernetes.Interface, object *resourcev1.ResourceClaim, kind types.PatchType, patch any, subresources ...string) (*resourcev1.ResourceClaim, error) {
	text, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	return client.ResourceV1().ResourceClaims(object.Namespace).Patch(ctx, object.Name, kind, text, metav1.PatchOptions{}, subresources...)
}

// A claim of which it is not known whether it was written is read again and again. After so many
// times it is not written any more: API servers end each request after a minute
// (--request-timeout).
const (
	resolveEvery = 2 * time.Second
	mostResolves = 45
)

// resolveAnswer finds out, in the background, what became of a write whose answer was lost. Until
// then the claim holds what it was to get.
func (b *Binder) resolveAnswer(client kubernetes.Interface, w *claims.Write) {
	go func() {
		for i := 0; i < mostResolves && b.claims.IsUnanswered(w.Owner); i++ {
			time.Sleep(resolveEvery)
			ctx, cancel := context.WithTimeout(context.Background(), bindTimeout)
			object, err := client.ResourceV1().ResourceClaims(w.Name.Namespace).Get(ctx, w.Name.Name, metav1.GetOptions{})
			cancel()
			if err == nil {
				b.claims.Observe(object)
			}
		}
		b.claims.Settle(w.Owner)
	}()
}
