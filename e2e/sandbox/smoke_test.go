// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// smokeLimit ends a test that hangs. The first one compiles Kubernetes, which takes ten minutes on
// two cores.
const smokeLimit = 40 * time.Minute

// needE2E skips a test that starts a cluster unless it is asked for.
func needE2E(t *testing.T) {
	t.Helper()
	if os.Getenv("DEVICESHARE_E2E") == "" {
		t.Skip("starts a cluster: run with DEVICESHARE_E2E=1 as root")
	}
	if testing.Short() {
		t.Skip("the suites start clusters, too: run `make test-all`")
	}
}

// smokeOptions are those of a cluster without GPUs and with Volcano's own scheduler: these tests
// are about the sandbox, not about the product.
func smokeOptions(t *testing.T) Options {
	t.Helper()
	// A short path, as Unix sockets need it, and never that of a sandbox somebody works with.
	state, err := os.MkdirTemp("", "dssb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(state)
			_ = os.Remove(state + ".lock")
		}
	})
	return Options{State: state, StockScheduler: true, NoGPU: true, NoWebhook: true, Audit: true, SimulatedNodes: 2,
		Progress: func(line string) { t.Log(line) }}
}

func startSmoke(ctx context.Context, t *testing.T, o Options) *Cluster {
	t.Helper()
	if err := Build(ctx, o); err != nil {
		t.Fatal(err)
	}
	c, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	return c
}

func TestPlainPodRunsOnTheRealNodeAndNothingIsLeft(t *testing.T) {
	needE2E(t)
	ctx, cancel := context.WithTimeout(t.Context(), smokeLimit)
	defer cancel()
	o := smokeOptions(t)
	before := seen(t, o)
	c := startSmoke(ctx, t, o)

	createPod(ctx, t, c, "hello", NodeName, "echo hello from $HOSTNAME")
	waitPhase(ctx, t, c, "hello", corev1.PodSucceeded)
	log, err := c.PodLog(ctx, metav1.NamespaceDefault, "hello", "main")
	if err != nil || log != "hello from hello\n" {
		t.Errorf("log of the pod: %q, %v", log, err)
	}

	createPod(ctx, t, c, "elsewhere", "simulated-1", "true")
	waitPhase(ctx, t, c, "elsewhere", corev1.PodRunning)
	assertBindingsInAudit(t, c, "hello", "elsewhere")
	assertSecondStartRefused(ctx, t, c)

	// A container that still runs must not survive either.
	createPod(ctx, t, c, "forever", NodeName, "sleep 100000")
	waitPhase(ctx, t, c, "forever", corev1.PodRunning)
	inside := namespaceOf(t, c.inside.first.Process.Pid)
	if n := len(inside.processes(t)); n < len(c.Components())+2 {
		t.Errorf("%d processes in the cluster's namespace, want its components, their first process and the container", n)
	}
	if len(networkDevices(t, c.layout)) == 0 {
		t.Error("the pod has no network device")
	}
	before.assertUnchanged(t, o)
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if left := inside.processes(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	assertNothingLeft(t, c.layout, before)
}

func TestKilledComponentsComeBackAndRunningContainersSurvive(t *testing.T) {
	needE2E(t)
	ctx, cancel := context.WithTimeout(t.Context(), smokeLimit)
	defer cancel()
	c := startSmoke(ctx, t, smokeOptions(t))
	createPod(ctx, t, c, "steady", NodeName, "sleep 100000")
	waitPhase(ctx, t, c, "steady", corev1.PodRunning)

	for _, s := range c.Components() {
		if err := c.Kill(s.Name); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitReady(ctx, s.Name); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range c.Components() {
		if s.Starts < 2 {
			t.Errorf("%s was started %d times, want at least 2", s.Name, s.Starts)
		}
	}
	createPod(ctx, t, c, "after", NodeName, "true")
	waitPhase(ctx, t, c, "after", corev1.PodSucceeded)
	pod, err := c.Client().CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, "steady", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := pod.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the running container was restarted %d times", n)
	}
}

func createPod(ctx context.Context, t *testing.T, c *Cluster, name, node, script string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			SchedulerName: "volcano", RestartPolicy: corev1.RestartPolicyNever,
			NodeSelector: map[string]string{corev1.LabelHostname: node},
			Containers: []corev1.Container{{Name: "main", Image: ImageCUDAClient, ImagePullPolicy: corev1.PullNever,
				Command: []string{"sh", "-c", script}}},
		},
	}
	if _, err := c.Client().CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func waitPhase(ctx context.Context, t *testing.T, c *Cluster, name string, want corev1.PodPhase) {
	t.Helper()
	var pod *corev1.Pod
	err := wait.PollUntilContextTimeout(ctx, pollEvery, time.Minute, true, func(ctx context.Context) (bool, error) {
		var err error
		pod, err = c.Client().CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == want, nil
	})
	if err != nil {
		t.Fatalf("pod %s is not %s: %v\n%+v", name, want, err, pod.Status)
	}
}

func assertBindingsInAudit(t *testing.T, c *Cluster, pods ...string) {
	t.Helper()
	events, err := c.AuditLog()
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		n := 0
		for _, e := range events {
			if e.ObjectRef.Name == pod && e.ObjectRef.Subresource == "binding" && e.User.Username == User(Scheduler) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("the audit log has %d bindings of pod %s by the scheduler, want 1", n, pod)
		}
	}
}

func assertSecondStartRefused(ctx context.Context, t *testing.T, c *Cluster) {
	t.Helper()
	_, err := Start(ctx, c.opts)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("a second start said %v, want a refusal that names process %d", err, os.Getpid())
	}
}
