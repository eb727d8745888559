// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"deviceshare/e2e/workload"
)

// Namespace is where the pods of a run are.
const Namespace = "chaos"

// Traffic creates pods and looks how they end.
type Traffic struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	History *History
	// Patience is how long an order may take. What takes longer counts as stuck.
	Patience time.Duration
	// Found is told of everything that ended as it should not.
	Found func(Violation)
	// Lost is the UUID of the device that Plan names so.
	Lost string

	farewells farewells
}

// Run keeps so many orders under way until more ends, and then waits for the last of them. ctx ends
// everything at once.
func (t *Traffic) Run(ctx, more context.Context, lanes int, seed uint64) {
	events := newReader(t)
	reading, stop := context.WithCancel(ctx)
	var all, reader sync.WaitGroup
	t.farewells.last = map[types.UID]*corev1.Pod{}
	reader.Go(func() { events.read(reading) })
	reader.Go(func() { t.farewells.follow(reading, t.Client) })
	for lane := range lanes {
		r := rand.New(rand.NewPCG(seed, uint64(lane)+1))
		all.Go(func() {
			for n := 0; more.Err() == nil && ctx.Err() == nil; n++ {
				t.serve(ctx, order(fmt.Sprintf("p%d-%d", lane, n), r), r, events)
			}
		})
	}
	all.Wait()
	stop()
	reader.Wait()
}

// serve creates what was ordered, waits for its end, and removes it.
func (t *Traffic) serve(ctx context.Context, o Order, r *rand.Rand, events *reader) {
	t.History.Count("orders: " + o.Kind)
	ctx, cancel := context.WithTimeout(ctx, t.Patience)
	defer cancel()
	if o.Controlled != nil {
		t.serveControlled(ctx, o.Controlled)
		return
	}
	if o.Gang {
		t.group(ctx, o.Pods)
	}
	for _, p := range o.Pods {
		t.persist(ctx, "create pod "+p.Name, func() error { return t.create(ctx, p) })
	}
	early := time.Duration(1<<62 - 1)
	if r.IntN(5) == 0 { // its user deletes it after a while, whatever it does
		early = time.Duration(r.Int64N(int64(8 * time.Second)))
	}
	t.await(ctx, o.Pods, time.Now().Add(early), events)
	for _, p := range o.Pods {
		t.remove(ctx, p.Name)
	}
	if o.Gang {
		t.persist(ctx, "delete pod group", func() error {
			err := t.Dynamic.Resource(workload.PodGroups()).Namespace(Namespace).Delete(ctx, o.Pods[0].Annotations[workload.GroupKey], metav1.DeleteOptions{})
			return unless(err, apierrors.IsNotFound)
		})
	}
}

// create creates a pod and writes down its UID. One that is there already is one whose creation was
// not answered.
func (t *Traffic) create(ctx context.Context, p *corev1.Pod) error {
	made, err := t.Client.CoreV1().Pods(Namespace).Create(ctx, p, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		made, err = t.Client.CoreV1().Pods(Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	}
	if err == nil {
		p.UID = made.UID
	}
	return err
}

func (t *Traffic) ended(p *corev1.Pod) {
	o := Judge(p, t.Lost)
	t.History.Count(o.Kind)
	if o.Wrong != "" {
		t.Found(Violation{"pods", o.Wrong + "\n" + t.log(p)})
	}
}

// log is the end of what the containers of a pod printed, as far as it can be had.
func (t *Traffic) log(p *corev1.Pod) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var out strings.Builder
	lines := int64(12)
	for _, c := range p.Spec.Containers {
		text, err := t.Client.CoreV1().Pods(Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: c.Name, TailLines: &lines}).DoRaw(ctx)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&out, "container %s printed at last:\n%s\n", c.Name, text)
	}
	return out.String()
}

// stuck reports what should have ended long ago.
func (t *Traffic) stuck(what string, p *corev1.Pod) {
	t.Found(Violation{"pods", fmt.Sprintf("%s has not ended after %s: %s", what, t.Patience, standing(p))})
}

// standing is one line about a pod.
func standing(p *corev1.Pod) string {
	text := fmt.Sprintf("last seen %q on node %q", p.Status.Phase, p.Spec.NodeName)
	for _, c := range p.Status.Conditions {
		if c.Message != "" {
			text += fmt.Sprintf("; %s: %s", c.Type, c.Message)
		}
	}
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Waiting != nil {
			text += fmt.Sprintf("; container %s waits: %s %s", s.Name, s.State.Waiting.Reason, s.State.Waiting.Message)
		}
	}
	return text
}

// wakeEvery is after how long a controller is woken that is not done. One of Kubernetes waits to
// see each pod that it has made, for at most five minutes, and then looks only when something
// happens. A pod that is made while the API server is killed, and evicted before the watch is back,
// it never sees.
const wakeEvery = time.Minute

// serveControlled creates an object, waits until its pods have done what they should, and removes
// it with its pods.
func (t *Traffic) serveControlled(ctx context.Context, o Controlled) {
	what := o.Kind() + " " + o.Name()
	t.persist(ctx, "create "+what, func() error { return unless(o.Create(ctx, t.Client), apierrors.IsAlreadyExists) })
	isDone, woken := false, time.Now()
	for ctx.Err() == nil && !isDone {
		if time.Since(woken) > wakeEvery {
			_ = o.Wake(ctx, t.Client) // else the next time
			woken = time.Now()
		}
		done, failed, err := o.Done(ctx, t.Client)
		if isDone = err == nil && done; isDone {
			t.History.Count(o.Kind() + "s complete")
			if failed {
				t.History.Count(o.Kind() + "s complete after more than one pod")
			}
		}
		pause(ctx, 250*time.Millisecond)
	}
	if !isDone && context.Cause(ctx) == context.DeadlineExceeded {
		t.Found(Violation{"pods", fmt.Sprintf("%s has not completed after %s", what, t.Patience)})
	}
	foreground := metav1.DeletePropagationForeground
	t.persist(ctx, "delete "+what, func() error {
		return unless(o.Delete(ctx, t.Client, metav1.DeleteOptions{PropagationPolicy: &foreground}), apierrors.IsNotFound)
	})
}

// group creates the pod group of a gang.
func (t *Traffic) group(ctx context.Context, pods []*corev1.Pod) {
	g := workload.Group(pods[0].Annotations[workload.GroupKey], len(pods))
	if class := pods[0].Spec.PriorityClassName; class != "" {
		g.Object["spec"].(map[string]any)["priorityClassName"] = class
	}
	t.persist(ctx, "create pod group", func() error {
		_, err := t.Dynamic.Resource(workload.PodGroups()).Namespace(Namespace).Create(ctx, g, metav1.CreateOptions{})
		return unless(err, apierrors.IsAlreadyExists)
	})
}

// remove deletes a pod and waits until it is gone.
func (t *Traffic) remove(ctx context.Context, name string) {
	pods := t.Client.CoreV1().Pods(Namespace)
	t.persist(ctx, "delete pod "+name, func() error {
		return unless(pods.Delete(ctx, name, metav1.DeleteOptions{}), apierrors.IsNotFound)
	})
	for ctx.Err() == nil {
		if _, err := pods.Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return
		}
		pause(ctx, 250*time.Millisecond)
	}
}

// persist does something until it succeeds: the API server comes and goes, as does the webhook,
// which guards some writes.
func (t *Traffic) persist(ctx context.Context, what string, do func() error) {
	var err error
	for ctx.Err() == nil {
		if err = do(); err == nil {
			return
		}
		pause(ctx, 200*time.Millisecond)
	}
	if context.Cause(ctx) == context.DeadlineExceeded {
		t.Found(Violation{"pods", fmt.Sprintf("%s: %v", what, err)})
	}
}

// unless takes an error of a kind for success.
func unless(err error, is func(error) bool) error {
	if is(err) {
		return nil
	}
	return err
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
