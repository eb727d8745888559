// SPDX-License-Identifier: Apache-2.0

// Package user does to a cluster what a person with kubectl does: it creates pods, waits for
// them, and reads events and logs. The suites and the demo see the product only through it.
package user

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// poll is how often a condition is looked at again.
const poll = 100 * time.Millisecond

// User works in one namespace. It is safe for concurrent use.
type User struct {
	client    kubernetes.Interface
	namespace string
}

// New returns a user of a namespace, which is created when it is missing.
func New(ctx context.Context, client kubernetes.Interface, namespace string) (*User, error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create namespace %s: %w", namespace, err)
	}
	u := &User{client: client, namespace: namespace}
	return u, u.until(ctx, "service account default", func() (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// Namespace is where this user works.
func (u *User) Namespace() string { return u.namespace }

// Create makes pods, in order.
func (u *User) Create(ctx context.Context, pods ...*corev1.Pod) error {
	for _, p := range pods {
		if _, err := u.client.CoreV1().Pods(u.namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pod %s/%s: %w", u.namespace, p.Name, err)
		}
	}
	return nil
}

// Get reads a pod.
func (u *User) Get(ctx context.Context, name string) (*corev1.Pod, error) {
	p, err := u.client.CoreV1().Pods(u.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get pod %s/%s: %w", u.namespace, name, err)
	}
	return p, nil
}

// Pods lists the pods of the namespace.
func (u *User) Pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := u.client.CoreV1().Pods(u.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", u.namespace, err)
	}
	return list.Items, nil
}

// Watch follows pods of the user's namespace.
func (u *User) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := u.client.CoreV1().Pods(u.namespace).Watch(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("watch pods in %s: %w", u.namespace, err)
	}
	return w, nil
}

// Delete removes pods and waits until they are gone. On time-out the error says
// where the first that stays stands.
func (u *User) Delete(ctx context.Context, names ...string) error {
	for _, name := range names {
		err := u.client.CoreV1().Pods(u.namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete pod %s/%s: %w", u.namespace, name, err)
		}
	}
	for _, name := range names {
		if _, err := u.wait(ctx, name, "gone", gone); err != nil {
			return err
		}
	}
	return nil
}

// DeleteAll removes every pod of the namespace, and whatever would make pods again, and waits until
// they are gone.
func (u *User) DeleteAll(ctx context.Context) error {
	if err := u.deleteControllers(ctx); err != nil {
		return err
	}
	for {
		pods, err := u.Pods(ctx)
		if err != nil || len(pods) == 0 {
			return err
		}
		names := make([]string, len(pods))
		for i := range pods {
			names[i] = pods[i].Name
		}
		if err := u.Delete(ctx, names...); err != nil {
			return err
		}
	}
}

// deleteControllers removes the controllers of the namespace's pods.
func (u *User) deleteControllers(ctx context.Context) error {
	background := metav1.DeletePropagationBackground
	how, all := metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{}
	apps := u.client.AppsV1()
	for what, err := range map[string]error{
		"Deployments":  apps.Deployments(u.namespace).DeleteCollection(ctx, how, all),
		"ReplicaSets":  apps.ReplicaSets(u.namespace).DeleteCollection(ctx, how, all),
		"StatefulSets": apps.StatefulSets(u.namespace).DeleteCollection(ctx, how, all),
		"DaemonSets":   apps.DaemonSets(u.namespace).DeleteCollection(ctx, how, all),
		"Jobs":         u.client.BatchV1().Jobs(u.namespace).DeleteCollection(ctx, how, all),
	} {
		if err != nil {
			return fmt.Errorf("delete the %s of %s: %w", what, u.namespace, err)
		}
	}
	return nil
}

// Wait waits until the pod satisfies the condition and returns it. On time-out
// the error says where the pod stands.
func (u *User) Wait(ctx context.Context, name, what string, want func(*corev1.Pod) bool) (*corev1.Pod, error) {
	return u.wait(ctx, name, what, func(p *corev1.Pod, err error) (bool, error) { return err == nil && want(p), err })
}

// wait follows a pod until wanted reports true. It gives up when wanted returns an error that
// asking again would not change. It returns the pod as it was last seen.
func (u *User) wait(ctx context.Context, name, what string, wanted func(*corev1.Pod, error) (bool, error)) (*corev1.Pod, error) {
	var last *corev1.Pod
	look := func(p *corev1.Pod, err error) (bool, error) {
		if err == nil {
			last = p
		}
		return wanted(p, err)
	}
	err := u.until(ctx, "pod "+name+" "+what, func() (bool, error) {
		p, err := u.client.CoreV1().Pods(u.namespace).Get(ctx, name, metav1.GetOptions{})
		done, err := look(p, err)
		if done || err != nil {
			return done, err
		}
		return u.follow(ctx, p, look)
	})
	if err != nil && last != nil {
		err = fmt.Errorf("%w; it is %s\n%s", err, describe(last), u.eventText(name))
	}
	return last, err
}

// follow calls look with each change of a pod, until look reports true or an error. It returns
// false when the pod was deleted, or when the API server has ended the watch, as it does after some
// minutes.
func (u *User) follow(ctx context.Context, p *corev1.Pod, look func(*corev1.Pod, error) (bool, error)) (done bool, err error) {
	w, err := u.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, p.Name).String(), ResourceVersion: p.ResourceVersion,
	})
	if err != nil {
		return false, nil // it is asked for again
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		now, isPod := e.Object.(*corev1.Pod)
		if !isPod || e.Type == watch.Deleted {
			return false, nil
		}
		if done, err := look(now, nil); done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// gone wants that there is no pod.
func gone(_ *corev1.Pod, err error) (bool, error) {
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// errOver: a pod that has ended does not run again, whatever its containers may do.
var errOver = errors.New("the pod has ended")

// WaitRunning waits until every container of the pod runs. A pod that ended instead
// is an error at once.
func (u *User) WaitRunning(ctx context.Context, name string) (*corev1.Pod, error) {
	return u.wait(ctx, name, "running", func(p *corev1.Pod, err error) (bool, error) {
		if err != nil {
			return false, err
		}
		if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
			return false, errOver
		}
		for i := range p.Status.ContainerStatuses {
			if p.Status.ContainerStatuses[i].State.Running == nil {
				return false, nil
			}
		}
		return p.Status.Phase == corev1.PodRunning, nil
	})
}

// WaitDone waits until the pod has succeeded or failed.
func (u *User) WaitDone(ctx context.Context, name string) (*corev1.Pod, error) {
	return u.Wait(ctx, name, "done", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	})
}

// WaitEvent waits for an event, or a condition of the pod, whose text contains
// every one of the words, and returns the text.
func (u *User) WaitEvent(ctx context.Context, name string, words ...string) (string, error) {
	var found string
	err := u.until(ctx, fmt.Sprintf("event on %s with %q", name, words), func() (bool, error) {
		texts, err := u.Said(ctx, name)
		for _, text := range texts {
			if containsAll(text, words) {
				found = text
				return true, err
			}
		}
		return false, err
	})
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, u.eventText(name))
	}
	return found, err
}

// WaitAnyEvent waits for such an event on any of the pods.
func (u *User) WaitAnyEvent(ctx context.Context, names []string, words ...string) (string, error) {
	var found string
	err := u.until(ctx, fmt.Sprintf("event on one of %s with %q", names, words), func() (bool, error) {
		for _, name := range names {
			texts, err := u.Said(ctx, name)
			if err != nil {
				return false, err
			}
			for _, text := range texts {
				if containsAll(text, words) {
					found = text
					return true, nil
				}
			}
		}
		return false, nil
	})
	return found, err
}

// Said returns what `kubectl describe pod` shows of events and conditions.
func (u *User) Said(ctx context.Context, name string) ([]string, error) {
	var texts []string
	p, err := u.client.CoreV1().Pods(u.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get pod %s/%s: %w", u.namespace, name, err)
	}
	for _, c := range p.Status.Conditions {
		if c.Message != "" {
			texts = append(texts, string(c.Type)+" "+c.Reason+": "+c.Message)
		}
	}
	events, err := u.Events(ctx, name)
	return append(texts, events...), err
}

// Events returns the events about a pod, which may be gone.
func (u *User) Events(ctx context.Context, name string) (texts []string, err error) {
	events, err := u.client.CoreV1().Events(u.namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.name", name).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list events of pod %s/%s: %w", u.namespace, name, err)
	}
	for i := range events.Items {
		texts = append(texts, events.Items[i].Reason+": "+events.Items[i].Message)
	}
	return texts, nil
}

// Log reads what a container has printed so far.
func (u *User) Log(ctx context.Context, pod, container string) (string, error) {
	stream, err := u.client.CoreV1().Pods(u.namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container}).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("read log of %s/%s/%s: %w", u.namespace, pod, container, err)
	}
	text, err := io.ReadAll(stream)
	return string(text), errors.Join(err, stream.Close())
}

// WaitLog waits until a container has printed the text and returns its log.
func (u *User) WaitLog(ctx context.Context, pod, container, text string) (string, error) {
	var log string
	err := u.until(ctx, fmt.Sprintf("%q in the log of %s/%s", text, pod, container), func() (bool, error) {
		got, err := u.Log(ctx, pod, container)
		if err != nil {
			return false, nil // not started yet: the kubelet has no log
		}
		log = got
		return strings.Contains(log, text), nil
	})
	if err != nil {
		err = fmt.Errorf("%w; the log is\n%s%s", err, log, u.eventText(pod))
	}
	return log, err
}

// Placement reads what the scheduler decided for a pod.
func Placement(p *corev1.Pod) (sharing.Placement, error) {
	text, ok := p.Annotations[wire.PodPlacement]
	if !ok {
		return sharing.Placement{}, fmt.Errorf("pod %s/%s has no annotation %s", p.Namespace, p.Name, wire.PodPlacement)
	}
	placement, err := wire.DecodePlacement(text)
	if err != nil {
		return placement, fmt.Errorf("placement of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return placement, nil
}

// until waits for a condition, or for the context to end.
func (u *User) until(ctx context.Context, what string, ok func() (bool, error)) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		done, err := ok()
		if done {
			return nil
		}
		if err != nil && ctx.Err() == nil && !transient(err) {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}

// transient reports whether asking again may help: the suites kill components.
func transient(err error) bool {
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}

// eventText is Said for an error message, whatever the context.
func (u *User) eventText(name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	texts, err := u.Said(ctx, name)
	if err != nil {
		return err.Error()
	}
	return "  " + strings.Join(texts, "\n  ")
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// describe is one line about where a pod stands.
func describe(p *corev1.Pod) string {
	text := string(p.Status.Phase)
	if p.Status.Reason != "" {
		text += " (" + p.Status.Reason + ": " + p.Status.Message + ")"
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range list {
			switch {
			case c.State.Waiting != nil:
				text += fmt.Sprintf(", %s waits: %s %s", c.Name, c.State.Waiting.Reason, c.State.Waiting.Message)
			case c.State.Terminated != nil:
				text += fmt.Sprintf(", %s ended: %s, exit code %d", c.Name, c.State.Terminated.Reason, c.State.Terminated.ExitCode)
			}
		}
	}
	return text
}
