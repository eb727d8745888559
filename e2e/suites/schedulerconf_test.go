// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/sharing/events"
)

// schedulerConfig is the ConfigMap with the scheduler's configuration, and its key.
const (
	schedulerConfig    = "deviceshare-scheduler-config"
	schedulerConfigKey = "volcano-scheduler.conf"
)

// testSchedulerConfig edits the scheduler's configuration past helm into one of Volcano 1.15. The
// scheduler that runs goes on with what it had. One that starts binds nobody, and says why, until
// the text is corrected.
func testSchedulerConfig(t *testing.T, w *world) {
	ctx, u := w.user(t, "scheduler-config", 5*time.Minute)
	right := w.configureScheduler(ctx, t, func(text string) string {
		return strings.Replace(text, "preempt, backfill", "gangPreempt, backfill", 1)
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
		defer cancel()
		w.configureScheduler(ctx, t, func(string) string { return right })
	})
	w.leader(ctx, t, "") // a suite before may have upgraded the scheduler, and none leads yet
	w.hurryConfig(ctx, t)
	askUntil(ctx, t, "an event of the ConfigMap", func() (bool, error) {
		return w.isMistakeTold(ctx, "gangPreempt is of a later version of Volcano: write preempt")
	})
	if !runs(ctx, t, u, "beside-a-mistake") {
		t.Error("no pod runs with the text that was in force before")
	}

	if err := w.cluster.Kill(sandbox.Scheduler); err != nil {
		t.Fatal(err)
	}
	askUntil(ctx, t, "the scheduler to say why it does not start", func() (bool, error) { return w.isSchedulerDown(ctx, "has mistakes, correct them in its ConfigMap") })
	if err := u.Create(ctx, pod("waits").App("main", oneDevice(), "info").Build()); err != nil {
		t.Fatal(err)
	}
	askUntil(ctx, t, "the scheduler to have been started again", func() (bool, error) {
		if _, err := w.cluster.Hurry(ctx, sandbox.Scheduler); err != nil {
			return false, err
		}
		p, err := w.schedulerPod(ctx)
		return err == nil && p.Status.ContainerStatuses[0].RestartCount >= 3, err
	})
	if p, err := u.Get(ctx, "waits"); err != nil || p.Spec.NodeName != "" {
		t.Errorf("a scheduler without the plugin has bound pod %+v: %v", p, err)
	}

	w.configureScheduler(ctx, t, func(string) string { return right })
	askUntil(ctx, t, "the scheduler to start", func() (bool, error) {
		_, _ = w.cluster.Hurry(ctx, sandbox.Scheduler) // it may be about to start
		p, err := w.schedulerPod(ctx)
		return err == nil && p.Status.ContainerStatuses[0].Ready, err
	})
	if !succeeds(ctx, t, u, "waits") {
		t.Error("the pod that waited does not run")
	}
}

// addOption adds lines before an option of the scheduler's configuration until the test has ended,
// each indented like the option.
func (w *world) addOption(ctx context.Context, t *testing.T, before string, lines ...string) {
	t.Helper()
	right := w.configureScheduler(ctx, t, func(text string) string {
		at := strings.Index(text, before)
		if at < 0 {
			t.Fatalf("the configuration has no %q:\n%s", before, text)
		}
		indent := text[strings.LastIndexByte(text[:at], '\n')+1 : at]
		return text[:at] + strings.Join(append(lines, ""), "\n"+indent) + text[at:]
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
		defer cancel()
		w.configureScheduler(ctx, t, func(string) string { return right })
		w.hurryConfig(ctx, t)
	})
}

// configureScheduler edits the ConfigMap as kubectl edit does, and returns the text before.
func (w *world) configureScheduler(ctx context.Context, t *testing.T, edit func(string) string) (before string) {
	t.Helper()
	maps := w.cluster.Client().CoreV1().ConfigMaps(sandbox.Namespace)
	config, err := maps.Get(ctx, schedulerConfig, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before = config.Data[schedulerConfigKey]
	config.Data[schedulerConfigKey] = edit(before)
	if _, err := maps.Update(ctx, config, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return before
}

// isMistakeTold reports whether an event of the ConfigMap has the words.
func (w *world) isMistakeTold(ctx context.Context, words string) (bool, error) {
	list, err := w.cluster.Client().CoreV1().Events(sandbox.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + schedulerConfig})
	if err != nil {
		return false, err
	}
	for _, e := range list.Items {
		if e.Reason == events.SchedulerConfigurationInvalid && strings.Contains(e.Message, words) {
			return true, nil
		}
	}
	return false, nil
}

func (w *world) schedulerPod(ctx context.Context) (*corev1.Pod, error) {
	list, err := w.cluster.Client().CoreV1().Pods(sandbox.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=deviceshare-scheduler"})
	if err != nil {
		return nil, err
	}
	if len(list.Items) != 1 || len(list.Items[0].Status.ContainerStatuses) != 1 {
		return nil, fmt.Errorf("there are %d pods of the scheduler, want one with a status", len(list.Items))
	}
	return &list.Items[0], nil
}

// isSchedulerDown reports whether the scheduler has ended with the words in its pod's status.
func (w *world) isSchedulerDown(ctx context.Context, words string) (bool, error) {
	p, err := w.schedulerPod(ctx)
	if err != nil {
		return false, err
	}
	s := p.Status.ContainerStatuses[0]
	for _, end := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if end != nil && strings.Contains(end.Message, words) {
			return true, nil
		}
	}
	return false, nil
}
