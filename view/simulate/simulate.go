// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/config"
	"deviceshare/plugins/admission"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/offline"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// Question is what would be done to a cluster.
type Question struct {
	Backends sharing.Backends
	Add      Added
	// OneByOne has each pod come when the one before has a place or waits. Otherwise all come
	// before the scheduler looks again.
	OneByOne bool
	// Remove are names of nodes that leave. The pods on them that Volcano placed are placed anew.
	Remove []string
	// Policy is that of pods that name none, "" for the one of the configuration.
	Policy string
	// Config is the text of volcano-scheduler.conf, "" for the captured one, or else the shipped
	// one.
	Config string
	// SchedulerName is whose pods are placed.
	SchedulerName string
	// onRequest has pods move, too, that were made a short time ago; onlyMoves has nobody leave
	// that does not move.
	onRequest, onlyMoves bool
}

// run is one simulation.
type run struct {
	question *Question
	state    *capture.State
	settings nodes.Settings
	admitter admitter
	cluster  *offline.Cluster
	nodes    []*corev1.Node
	out      *view.WhatIf
	// asked are the pods whose places are told, in the order in which they came.
	asked []asked
}

type asked struct {
	name types.NamespacedName
	was  view.Was
	// refused is why the webhook did not let it in.
	refused string
}

// Run answers the question about a captured cluster, which is not changed.
func Run(s *capture.State, q *Question) (*view.WhatIf, error) {
	r, err := newRun(s, q)
	if err != nil {
		return nil, err
	}
	for _, step := range []func() error{r.loadCapture, r.runScheduler, r.noteWaiting, r.removeNodes, r.addNewPods} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	r.fillReport()
	return r.out, nil
}

func newRun(s *capture.State, q *Question) (*run, error) {
	if s.Scheduling == nil {
		return nil, errNoScheduling
	}
	r := &run{question: q, state: s, out: &view.WhatIf{}}
	device, err := r.deviceConfig()
	if err != nil {
		return nil, err
	}
	r.settings = nodes.Settings{Names: device.Names(), Factor: device.MemoryFactor, Defaults: device.Defaults()}
	text := q.Config
	switch {
	case text != "":
	case s.Scheduling.Config != nil:
		text = *s.Scheduling.Config
	default:
		r.addNote("The capture does not have the scheduler's configuration: the shipped one is assumed.")
	}
	r.admitter = admitter{
		settings: admission.NewSettings(device, []string{q.SchedulerName}), classes: s.Scheduling.Classes,
		scheduler: q.SchedulerName, born: metav1.NewTime(s.Taken),
	}
	r.cluster, err = offline.New(offline.Options{
		Backends: q.Backends, Settings: r.settings, Config: text, Policy: q.Policy, SchedulerName: q.SchedulerName, Rested: q.onRequest, OnlyMoves: q.onlyMoves, Now: s.Taken,
	})
	return r, err
}

// deviceConfig reads the captured device configuration, or is the default one.
func (r *run) deviceConfig() (config.Device, error) {
	if r.state.DeviceConfig == nil {
		r.addNote("The capture does not have the device configuration: the default one is assumed.")
		return config.DefaultDevice(), nil
	}
	d, problems := config.LoadDevice([]byte(*r.state.DeviceConfig))
	if len(problems) > 0 {
		var mistakes []error
		for _, p := range problems {
			mistakes = append(mistakes, errors.New(p.String()))
		}
		return config.Device{}, fmt.Errorf("read the device configuration of the capture: %w", errors.Join(mistakes...))
	}
	return d, nil
}

func (r *run) addNote(text string) { r.out.Notes = append(r.out.Notes, text) }

func (r *run) loadCapture() error {
	r.nodes = wholeNodes(r.state)
	scheduling := r.state.Scheduling
	for _, o := range slices.Concat(
		anyOf(scheduling.Classes), anyOf(scheduling.Namespaces), anyOf(scheduling.Budgets), anyOf(scheduling.Queues), anyOf(r.state.Quotas),
		anyOf(r.state.Groups), anyOf(r.nodes), anyOf(wholePods(r.state)),
	) {
		if err := r.cluster.Add(o); err != nil {
			return err
		}
	}
	for _, u := range r.state.Unread {
		r.addNote("Not read of the capture: " + u + ".")
	}
	for _, f := range r.state.Forbidden {
		r.addNote("Not in the capture, for want of a right: " + f + ".")
	}
	return nil
}

func anyOf[T any](list []T) []any {
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = x
	}
	return out
}

// runScheduler has the scheduler run until it changes nothing.
func (r *run) runScheduler() error {
	n, err := r.cluster.Settle()
	r.out.Cycles += n
	return err
}

// noteWaiting remembers who waited in the capture, and was placed as soon as the scheduler looked.
func (r *run) noteWaiting() error {
	for _, p := range wholePods(r.state) {
		if r.isWaiting(p) {
			r.asked = append(r.asked, asked{name: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, was: view.Waited})
		}
	}
	return nil
}

func (r *run) isWaiting(p *corev1.Pod) bool { return waitsFor(p, r.question.SchedulerName) }

func waitsFor(p *corev1.Pod, scheduler string) bool {
	return p.Spec.NodeName == "" && p.Spec.SchedulerName == scheduler && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodPending
}

// removeNodes takes nodes out of the cluster, and has their pods made anew.
func (r *run) removeNodes() error {
	for _, name := range r.question.Remove {
		i := slices.IndexFunc(r.nodes, func(n *corev1.Node) bool { return n.Name == name })
		if i < 0 {
			return fmt.Errorf("remove node %s: the captured cluster has no such node", name)
		}
		var moved []*corev1.Pod
		for _, p := range r.cluster.Pods() {
			if p.Spec.NodeName != name {
				continue
			}
			if err := r.cluster.RemovePod(types.NamespacedName{Namespace: p.Namespace, Name: p.Name}); err != nil {
				return err
			}
			if p.Annotations[wire.GroupName] != "" && p.Spec.SchedulerName == r.question.SchedulerName && p.Status.Phase == corev1.PodRunning {
				moved = append(moved, p)
			}
		}
		if err := r.cluster.RemoveNode(r.nodes[i]); err != nil {
			return err
		}
		r.nodes = slices.Delete(r.nodes, i, i+1)
		for _, p := range moved {
			if err := r.placeAnew(p); err != nil {
				return err
			}
		}
	}
	if len(r.question.Remove) > 0 {
		return r.runScheduler()
	}
	return nil
}

// placeAnew makes a pod that lost its node again, as its controller does. A single pod gets a new
// group; a member of a larger one comes back to it.
func (r *run) placeAnew(old *corev1.Pod) error {
	p := r.successorOf(old)
	name := types.NamespacedName{Namespace: p.Namespace, Name: p.Annotations[wire.GroupName]}
	i := slices.IndexFunc(r.state.Groups, func(g *schedulingv1beta1.PodGroup) bool { return g.Namespace == name.Namespace && g.Name == name.Name })
	if i < 0 || r.state.Groups[i].Spec.MinMember <= 1 {
		queue := ""
		if i >= 0 {
			queue = r.state.Groups[i].Spec.Queue
		}
		g := groupFor(p)
		g.Spec.Queue = queue
		if err := r.cluster.Add(g); err != nil {
			return err
		}
	}
	r.asked = append(r.asked, asked{name: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, was: view.Moved})
	return r.cluster.Add(p)
}

// successorOf is the pod that a controller makes for one that is gone.
func (r *run) successorOf(old *corev1.Pod) *corev1.Pod {
	p := old.DeepCopy()
	r.admitter.made++
	p.UID, p.CreationTimestamp = old.UID+"/again", metav1.NewTime(r.admitter.born.Add(birthOffset(r.admitter.made)))
	p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
	for _, key := range admission.PlacementKeys() {
		delete(p.Annotations, key)
	}
	return p
}

func (r *run) addNewPods() error {
	for _, g := range r.question.Add.Groups {
		g = g.DeepCopy()
		if g.CreationTimestamp.IsZero() {
			g.CreationTimestamp = r.admitter.born
		}
		g.Status.Phase = schedulingv1beta1.PodGroupPending
		if g.Spec.MinMember == 0 {
			g.Spec.MinMember = 1
		}
		if err := r.cluster.Add(g); err != nil {
			return err
		}
	}
	for _, p := range r.question.Add.Pods {
		if err := r.addOne(p); err != nil {
			return err
		}
	}
	if !r.question.OneByOne && len(r.question.Add.Pods) > 0 {
		return r.runScheduler()
	}
	return nil
}

func (r *run) addOne(p *corev1.Pod) error {
	a, err := r.admitter.admitPod(p)
	if err != nil {
		return fmt.Errorf("add a pod: %w", err)
	}
	name := types.NamespacedName{Namespace: a.pod.Namespace, Name: a.pod.Name}
	if _, there := r.cluster.Pod(name); there {
		return fmt.Errorf("add pod %s: there is one of this name", name)
	}
	r.asked = append(r.asked, asked{name: name, was: view.Added, refused: a.refused})
	if a.refused != "" {
		return nil
	}
	if a.group != nil {
		if err := r.cluster.Add(a.group); err != nil {
			return err
		}
	}
	if err := r.cluster.Add(a.pod); err != nil {
		return err
	}
	if r.question.OneByOne {
		return r.runScheduler()
	}
	return nil
}

func birthOffset(n int) time.Duration { return time.Duration(n) * time.Millisecond }
