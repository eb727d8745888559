// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// How many pods arrive side by side: bare ones, Jobs of one pod, and pods of a Deployment, of which
// one is deleted every second at most.
const (
	bareLanes      = 4
	jobLanes       = 3
	deploymentPods = 3
)

// crowd lets pods come and go until it is told to finish.
type crowd struct {
	t                *testing.T
	client           kubernetes.Interface
	user             *user.User
	counted          *tally
	stop             context.CancelFunc
	all              sync.WaitGroup
	complete, failed atomic.Int64 // Jobs
}

// startCrowd begins at once. Pods that have begun when finish is called are waited for.
func startCrowd(ctx context.Context, t *testing.T, client kubernetes.Interface, u *user.User, counted *tally) *crowd {
	t.Helper()
	a := &crowd{t: t, client: client, user: u, counted: counted}
	coming, stop := context.WithCancel(ctx)
	a.stop = stop
	a.deploy(ctx)
	for lane := range bareLanes {
		a.all.Go(func() { a.bare(ctx, coming, lane) })
	}
	a.all.Go(func() { a.plain(ctx, coming) })
	for lane := range jobLanes {
		a.all.Go(func() { a.jobs(ctx, coming, lane) })
	}
	a.all.Go(func() { a.replace(coming) })
	return a
}

// finish lets no more pods come, and waits until everything that was begun has ended and the
// Deployment is complete.
func (a *crowd) finish(ctx context.Context) {
	a.t.Helper()
	a.stop()
	a.all.Wait()
	a.awaitRest(ctx)
	for {
		d, err := a.client.AppsV1().Deployments(a.user.Namespace()).Get(ctx, "set", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas == deploymentPods {
			break
		}
		if !orDone(ctx, 200*time.Millisecond) {
			a.t.Fatalf("the Deployment has not got its pods back: %v", err)
		}
	}
	background := metav1.DeletePropagationBackground
	err := a.client.AppsV1().Deployments(a.user.Namespace()).Delete(ctx, "set", metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil {
		a.t.Error(err)
	}
}

// bare lets pods without a controller come, one after the other; every third has an init container.
func (a *crowd) bare(ctx, coming context.Context, lane int) {
	for n := 0; coming.Err() == nil; n++ {
		name := fmt.Sprintf("bare%d-%d", lane, n)
		p := pod(name).App("main", workload.Ask{Number: 1, Memory: 500}, "info", "env", "sleep", "1")
		if n%3 == 0 {
			p = p.Init("first", workload.Ask{Number: 1, Memory: 500}, "info")
		}
		if !a.comesAndGoes(ctx, name, p.Build()) {
			return
		}
	}
}

// plain lets pods without devices come.
func (a *crowd) plain(ctx, coming context.Context) {
	for n := 0; coming.Err() == nil; n++ {
		name := fmt.Sprintf("plain-%d", n)
		if !a.comesAndGoes(ctx, name, pod(name).Plain("main", "sleep 1").Label(plainPod, "yes").Build()) {
			return
		}
	}
}

// comesAndGoes lets a pod do what it comes for, and removes it unless it takes too long. It returns
// false if no more can come.
func (a *crowd) comesAndGoes(ctx context.Context, name string, p *corev1.Pod) bool {
	if err := a.user.Create(ctx, p); err != nil {
		a.t.Error(err)
		return false
	}
	if !a.ends(ctx, name) {
		return ctx.Err() == nil // it is looked at again when the kills are over
	}
	if err := a.user.Delete(ctx, name); err != nil {
		a.t.Error(err)
		return false
	}
	return true
}

// ends waits until a pod has ended, but not for ever: kills may hold it up again and again, and
// others are to come. It waits much longer than a slow machine takes, where pods would heap up.
func (a *crowd) ends(ctx context.Context, name string) bool {
	once, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	_, err := a.user.WaitDone(once, name)
	return err == nil
}

// stuckAfter is how long after the last kill a pod may take to end. The kubelet tries again every
// ten seconds or so.
const stuckAfter = 90 * time.Second

// awaitRest waits for the bare pods that are left, and notes which of them never end.
func (a *crowd) awaitRest(ctx context.Context) {
	a.t.Helper()
	once, cancel := context.WithTimeout(ctx, stuckAfter)
	defer cancel()
	pods, err := a.user.Pods(ctx)
	if err != nil {
		a.t.Fatal(err)
	}
	for i := range pods {
		if len(pods[i].OwnerReferences) > 0 {
			continue
		}
		if p, err := a.user.WaitDone(once, pods[i].Name); err != nil && p != nil {
			a.t.Log(err)
			a.counted.giveUp(p)
		}
	}
}

// jobs lets Jobs with the usual number of retries come, one after the other.
func (a *crowd) jobs(ctx, coming context.Context, lane int) {
	api := a.client.BatchV1().Jobs(a.user.Namespace())
	background := metav1.DeletePropagationBackground
	for n := 0; coming.Err() == nil; n++ {
		name := fmt.Sprintf("job%d-%d", lane, n)
		template := pod("").App("main", workload.Ask{Number: 1, Memory: 500}, "info", "env", "sleep", "1").Build()
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: template.Spec}},
		}
		if _, err := api.Create(ctx, job, metav1.CreateOptions{}); err != nil {
			a.t.Error(err)
			return
		}
		switch a.jobEnd(ctx, name) {
		case batchv1.JobComplete:
			a.complete.Add(1)
		case batchv1.JobFailed:
			a.failed.Add(1)
			a.t.Errorf("Job %s failed although its pod only had to be made anew", name)
		default:
			a.t.Errorf("Job %s did not end", name)
			return
		}
		if err := api.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			a.t.Error(err)
			return
		}
	}
}

// jobEnd waits until a Job has ended and returns how; "" if ctx ends before.
func (a *crowd) jobEnd(ctx context.Context, name string) batchv1.JobConditionType {
	for {
		job, err := a.client.BatchV1().Jobs(a.user.Namespace()).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			for _, c := range job.Status.Conditions {
				if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
					return c.Type
				}
			}
		}
		if !orDone(ctx, 200*time.Millisecond) {
			return ""
		}
	}
}

// deploy makes the Deployment.
func (a *crowd) deploy(ctx context.Context) {
	a.t.Helper()
	labels := map[string]string{"app": "set"}
	template := pod("").App("main", workload.Ask{Number: 1, Memory: 500}, "info", "forever").
		Edit(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }).Build()
	n := int32(deploymentPods)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "set"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template.Spec},
		},
	}
	if _, err := a.client.AppsV1().Deployments(a.user.Namespace()).Create(ctx, d, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
}

// replace deletes a pod of the Deployment, and every one that failed, and does so again after a
// second, once what was deleted is gone. One deleted every second on a machine that takes longer to
// start the next would let more and more of them come.
func (a *crowd) replace(coming context.Context) {
	api := a.client.CoreV1().Pods(a.user.Namespace())
	for orDone(coming, time.Second) {
		list, err := api.List(coming, metav1.ListOptions{LabelSelector: "app=set"})
		if err != nil || len(list.Items) == 0 || slices.ContainsFunc(list.Items, isDeleted) {
			continue
		}
		victim := rand.IntN(len(list.Items))
		for i := range list.Items {
			p := &list.Items[i]
			if i != victim && p.Status.Phase != corev1.PodFailed {
				continue
			}
			if err := api.Delete(coming, p.Name, metav1.DeleteOptions{}); err != nil && coming.Err() == nil && !apierrors.IsNotFound(err) {
				a.t.Error(err)
			}
		}
	}
}

func isDeleted(p corev1.Pod) bool { return p.DeletionTimestamp != nil }
