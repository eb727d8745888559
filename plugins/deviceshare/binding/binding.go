// SPDX-License-Identifier: Apache-2.0

// Package binding sends what sessions decided to the API server.
package binding

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/api"
	volcanometrics "volcano.sh/volcano/pkg/scheduler/metrics"

	"deviceshare/plugins/deviceshare/claims"
	"deviceshare/plugins/deviceshare/metrics"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/podstate"
	"deviceshare/plugins/deviceshare/waiting"
	"deviceshare/plugins/leader"
	"deviceshare/sharing"
	"deviceshare/sharing/events"
)

// bindTimeout bounds one bind call. Without a bound a call that hangs would hold
// its devices for ever.
const bindTimeout = 30 * time.Second

// bindsAtOnce is how many bind calls are under way at a time. Volcano starts as many as a gang has
// pods. The API server serves and queues some hundreds for one account and answers the rest with
// 429, and client-go tries those again a second later: see API Priority and Fairness, level
// workload-low.
const bindsAtOnce = 64

// numaDecision is the annotation in which Volcano's NUMA plugin hands its
// decision to the node. Volcano writes it into the pod in memory and counts on
// the Binding to carry it.
const numaDecision = "volcano.sh/topology-decision"

// Binder binds pods of every kind, and sends the placement of those that were
// given devices on the Binding itself: the API server writes the annotations
// and the node name in one step, so that a pod has both or neither.
//
// It sends only what was decided for this bind. What the pod in memory carries
// may be left from an earlier attempt.
type Binder struct {
	pods    *nodes.Pods
	claims  *claims.Registry
	report  Reporter
	devices DeviceRule
	lead    leader.Leadership
	metrics *metrics.Metrics
	// places has room for the calls that may be under way.
	places chan struct{}
}

// New returns a binder with room for bindsAtOnce calls. The registry of claims is nil for a
// scheduler that allocates none.
func New(pods *nodes.Pods, held *claims.Registry, report Reporter, devices DeviceRule, lead leader.Leadership, m *metrics.Metrics) *Binder {
	return &Binder{
		pods: pods, claims: held, report: report, devices: devices, lead: lead, metrics: m,
		places: make(chan struct{}, bindsAtOnce),
	}
}

// Reporter tells people what is no problem but must be known, on the object that it concerns. Safe
// for concurrent use.
type Reporter interface {
	Tell(object *corev1.ObjectReference, reason, message string)
}

// DeviceRule reports whether a pod must not be bound without a placement. Safe for
// concurrent use.
type DeviceRule interface {
	MustHaveDevices(*corev1.Pod) bool
}

// Bind binds the tasks and returns what went wrong, by task. An error does not
// mean that the pod was not bound: the answer may have been lost. The
// reservation is kept until a snapshot shows what happened.
func (b *Binder) Bind(client kubernetes.Interface, tasks []*api.TaskInfo) map[api.TaskID]string {
	failed := make(map[api.TaskID]string)
	for _, t := range tasks {
		if err := b.bindTask(client, t); err != nil {
			klog.ErrorS(err, "Bind failed", "pod", klog.KObj(t.Pod), "node", t.NodeName)
			failed[t.UID] = waiting.WithoutVerbs(err.Error())
			continue
		}
		observeBound(t.Pod)
	}
	return failed
}

func (b *Binder) bindTask(client kubernetes.Interface, t *api.TaskInfo) (err error) {
	// The time of a call begins when its turn has come.
	b.places <- struct{}{}
	defer func() { <-b.places }()
	until, done, err := b.lead.Begin()
	if err != nil {
		return fmt.Errorf("bind pod %s/%s to node %s: %w", t.Namespace, t.Name, t.NodeName, err)
	}
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), bindTimeout)
	defer cancel()
	ctx, cancel = context.WithDeadline(ctx, until)
	defer cancel()
	isClaimed, err := b.bindClaim(ctx, client, t)
	if err != nil {
		return fmt.Errorf("bind pod %s/%s to node %s: %w", t.Namespace, t.Name, t.NodeName, err)
	}
	annotations := make(map[string]string)
	if v, ok := t.Pod.Annotations[numaDecision]; ok {
		annotations[numaDecision] = v
	}
	decided, fallback, err := b.pods.BeginBind(t.Pod, t.NodeName)
	switch {
	case err != nil:
		return err
	case decided != nil:
		defer func() { b.pods.EndBind(sharing.Owner(t.Pod.UID), t.NodeName, err) }()
		maps.Copy(annotations, decided.Annotations)
	case !isClaimed && b.devices.MustHaveDevices(t.Pod):
		// Its decision was given up and forgotten before this call came. Bound
		// without a placement it could never start.
		return fmt.Errorf("bind pod %s/%s to node %s: %w", t.Namespace, t.Name, t.NodeName, podstate.ErrWithdrawn)
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.Pod.Namespace, Name: t.Pod.Name, UID: t.Pod.UID, Annotations: annotations},
		Target:     corev1.ObjectReference{Kind: "Node", Name: t.NodeName},
	}
	if err := client.CoreV1().Pods(t.Pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("bind pod %s/%s to node %s: %w", t.Namespace, t.Name, t.NodeName, err)
	}
	if decided != nil {
		b.metrics.ObservePlacement(time.Since(t.Pod.CreationTimestamp.Time))
	}
	if fallback != nil {
		object := nodes.PodReference(t.Pod)
		b.report.Tell(&object, events.DeviceModeFallback, fallback.Why)
	}
	return nil
}

// observeBound counts a bound pod in Volcano's own metrics, as its default
// binder does.
func observeBound(pod *corev1.Pod) {
	volcanometrics.UpdateTaskScheduleDuration(volcanometrics.Duration(pod.CreationTimestamp.Time))
}
