// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// replay lets pods come and go.
type replay struct {
	*run
	series *view.Series
	// waiting are the pods that came and have no node, running those that have, by when they end.
	waiting []*TracePod
	running map[int64][]*TracePod
	now     int64
	// held is what pods were promised.
	memoryHeld int64
	coresHeld  int
	count      int
	// evicted is how many evictions have been taken off.
	evicted int
}

// traceNamespace is the namespace of the pods of a trace.
const traceNamespace = "trace"

// Replay lets the pods of a trace come into a captured cluster, whose own pods stay. At each second
// at which pods end or come, first the former leave, and then the scheduler looks at all that wait.
// A pod runs for its duration from the moment at which it is placed.
func Replay(s *capture.State, q *Question, pods []TracePod) (*view.Series, error) {
	r, err := newRun(s, q)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.loadCapture(), r.runScheduler()); err != nil {
		return nil, err
	}
	p := &replay{run: r, series: &view.Series{Policy: cmp.Or(q.Policy, "as configured")}, running: map[int64][]*TracePod{}}
	if err := p.measureCapacity(); err != nil {
		return nil, err
	}
	p.recordPoint()
	for len(pods) > 0 || len(p.running) > 0 {
		next := p.nextSecond(pods)
		coming := 0
		for coming < len(pods) && pods[coming].Arrival <= next {
			coming++
		}
		p.now = next
		if err := p.processSecond(pods[:coming]); err != nil {
			return nil, err
		}
		pods = pods[coming:]
	}
	p.series.NeverPlaced = len(p.waiting)
	return p.series, nil
}

// nextSecond is the next second at which something happens.
func (r *replay) nextSecond(pods []TracePod) int64 {
	next := int64(maxTraceNumber) * 4
	if len(pods) > 0 {
		next = pods[0].Arrival
	}
	for at := range r.running {
		next = min(next, at)
	}
	return next
}

// measureCapacity reads what the cluster has, and what its own pods were promised.
func (r *replay) measureCapacity() error {
	for _, n := range r.currentCluster().Devices("") {
		for i := range n.Devices {
			d := &n.Devices[i]
			r.series.Memory, r.series.Cores = r.series.Memory+d.Memory, r.series.Cores+d.Cores
			r.memoryHeld, r.coresHeld = r.memoryHeld+d.MemoryPromised, r.coresHeld+d.CoresPromised
		}
	}
	if r.series.Memory == 0 {
		return errors.New("replay the trace: the captured cluster has no devices")
	}
	return nil
}

func (r *replay) processSecond(coming []TracePod) error {
	for _, p := range r.running[r.now] {
		if err := r.finishPod(p); err != nil {
			return err
		}
	}
	delete(r.running, r.now)
	for i := range coming {
		if err := r.submitPod(&coming[i]); err != nil {
			return err
		}
	}
	if err := r.runScheduler(); err != nil {
		return err
	}
	for ; r.evicted < len(r.cluster.Evicted()); r.evicted++ {
		if err := r.adjustPromised(r.cluster.Evicted()[r.evicted].Pod, -1); err != nil {
			return err
		}
	}
	if err := r.recordPlaced(); err != nil {
		return err
	}
	r.recordPoint()
	return nil
}

func (r *replay) recordPoint() {
	m := view.Moment{Second: r.now, Running: r.count, Waiting: len(r.waiting), Memory: r.memoryHeld, Cores: r.coresHeld}
	if n := len(r.series.Points); n > 0 && r.series.Points[n-1].Second == r.now {
		r.series.Points[n-1] = m
		return
	}
	r.series.Points = append(r.series.Points, m)
}

func (p *TracePod) namespacedName() types.NamespacedName {
	return types.NamespacedName{Namespace: traceNamespace, Name: p.Name}
}

func (r *replay) submitPod(p *TracePod) error {
	a, err := r.admitter.admitPod(p.toPod(r.admitter.scheduler, &r.settings))
	if err != nil {
		return fmt.Errorf("replay the trace: %w", err)
	}
	if a.refused != "" {
		return fmt.Errorf("replay the trace: pod %s: the webhook refuses it: %s", p.Name, a.refused)
	}
	r.waiting = append(r.waiting, p)
	if err := r.cluster.Add(a.group); err != nil {
		return err
	}
	return r.cluster.Add(a.pod)
}

func (r *replay) finishPod(p *TracePod) error {
	pod, there := r.cluster.Pod(p.namespacedName())
	if !there {
		return nil // it was evicted
	}
	if err := r.adjustPromised(pod, -1); err != nil {
		return err
	}
	group := types.NamespacedName{Namespace: traceNamespace, Name: pod.Annotations[wire.GroupName]}
	if err := r.cluster.RemovePod(p.namespacedName()); err != nil {
		return err
	}
	r.cluster.RemoveGroup(group)
	return nil
}

func (r *replay) recordPlaced() error {
	still := r.waiting[:0]
	for _, p := range r.waiting {
		pod, there := r.cluster.Pod(p.namespacedName())
		if !there || pod.Spec.NodeName == "" {
			still = append(still, p)
			continue
		}
		if err := r.adjustPromised(pod, 1); err != nil {
			return err
		}
		end := r.now + p.Duration
		r.running[end] = append(r.running[end], p)
		r.series.Placed, r.series.Waited = r.series.Placed+1, r.series.Waited+r.now-p.Arrival
	}
	r.waiting = slices.Clip(still)
	return nil
}

// adjustPromised adds what a pod was promised, or takes it away again.
func (r *replay) adjustPromised(p *corev1.Pod, times int) error {
	r.count += times
	text := p.Annotations[wire.PodPlacement]
	if text == "" {
		return nil // it asked for no devices
	}
	placement, err := wire.DecodePlacement(text)
	if err != nil {
		return fmt.Errorf("read the placement of pod %s: %w", p.Name, err)
	}
	for _, c := range placement.Containers {
		for _, s := range c.Shares {
			r.memoryHeld, r.coresHeld = r.memoryHeld+int64(times)*int64(s.Memory), r.coresHeld+times*int(s.Cores)
		}
	}
	return nil
}

// toPod is the pod as its owner would write it, with the names and units that are in force.
func (p *TracePod) toPod(scheduler string, s *nodes.Settings) *corev1.Pod {
	list := corev1.ResourceList{}
	put := func(name corev1.ResourceName, amount *resource.Quantity) {
		if !amount.IsZero() {
			list[name] = *amount
		}
	}
	put(corev1.ResourceCPU, resource.NewMilliQuantity(p.CPU, resource.DecimalSI))
	put(corev1.ResourceMemory, resource.NewQuantity(p.RAM<<20, resource.BinarySI))
	put(corev1.ResourceName(s.Names.Number), resource.NewQuantity(p.Devices, resource.DecimalSI))
	put(corev1.ResourceName(s.Names.Memory), resource.NewQuantity((p.Memory+s.Factor-1)/s.Factor, resource.DecimalSI))
	put(corev1.ResourceName(s.Names.Cores), resource.NewQuantity(p.Cores, resource.DecimalSI))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: traceNamespace, Name: p.Name, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			SchedulerName: scheduler, PriorityClassName: p.Priority,
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: list}}},
		},
	}
	for key, value := range map[string]string{schedulingv1beta1.QueueNameAnnotationKey: p.Queue, wire.UserPolicy: p.Policy, wire.UserMode: p.Mode} {
		if value != "" {
			pod.Annotations[key] = value
		}
	}
	return pod
}
