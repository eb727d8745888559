// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// testStrangers uses devices without a share: a program of the host, a privileged pod and one that
// names every device to NVIDIA's runtime, both of which ask for nothing, and what a killed pod has
// left behind. All are told with their owner. Pods with shares are not, nor is who is exempt.
func testStrangers(t *testing.T, w *world) {
	ctx, u := w.user(t, "strangers", 2*time.Minute)
	_, operator := w.user(t, exemptNamespace, time.Minute)
	w.runtimeClass(ctx, t, "nvidia", sandbox.NVIDIAHandler)
	exempt := pod("exempt").App("main", workload.Ask{}, "alloc", "50", "forever").Edit(w.cluster.TakeDevices).Build()
	tenant := pod("tenant").App("main", workload.Ask{Number: 1, Memory: 1000}, "alloc", "500", "forever").Build()
	whole := pod("whole").App("main", workload.Ask{Number: 1}, "alloc", "2000", "forever").Build()
	killed := pod("killed").App("main", workload.Ask{Number: 1, Memory: 700}, "alloc", "400", "forever").Build()
	if err := errors.Join(operator.Create(ctx, exempt), u.Create(ctx, tenant, whole, killed)); err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]*user.User{"exempt": operator, "tenant": u, "whole": u, "killed": u} {
		if _, err := of.WaitLog(ctx, name, "main", "forever"); err != nil {
			t.Fatal(err)
		}
	}
	hostCtx, endHost := context.WithCancel(ctx)
	defer endHost()
	go func() { _, _ = w.cluster.UseGPU(hostCtx, "device", "3", "alloc", "70", "forever") }()
	began := time.Now()
	takers := map[string]func(*corev1.Pod){"privileged": w.cluster.TakeDevices, "names-all": namesAll}
	for name, take := range takers {
		if err := u.Create(ctx, pod(name).App("main", workload.Ask{}, "alloc", "60", "forever").Edit(take).Build()); err != nil {
			t.Fatal(err)
		}
	}
	for name := range takers {
		if _, err := u.WaitEvent(ctx, name, "DeviceUsedWithoutShare", "of container main has ", "of which it was given nothing"); err != nil {
			log, _ := u.Log(ctx, name, "main")
			t.Fatalf("%v; its log is\n%s", err, log)
		}
		t.Logf("%s was told within %s of its creation", name, time.Since(began).Round(time.Second))
	}
	if err := w.nodeSaid(ctx, "DeviceUsedWithoutShare", hostProgram); err != nil {
		t.Fatal(err)
	}
	w.shows(ctx, t, func(page string) error {
		for _, pod := range []string{"privileged", "names-all", ""} {
			namespace := map[bool]string{true: u.Namespace()}[pod != ""]
			if !strings.Contains(page, fmt.Sprintf(`namespace="%s",node="%s",pod="%s"} `, namespace, sandbox.NodeName, pod)) {
				return fmt.Errorf("no stranger %q", pod)
			}
		}
		if strings.Contains(page, fmt.Sprintf(`stranger_memory_bytes{namespace="%s"`, exemptNamespace)) {
			return errors.New("a pod that is exempt is shown")
		}
		return used(page, u, "whole", 2000)
	})
	w.leftBehind(ctx, t, u, "killed")
	if err := u.Delete(ctx, "privileged", "names-all"); err != nil {
		t.Fatal(err)
	}
	endHost()
	w.shows(ctx, t, func(page string) error {
		if strings.Contains(page, "deviceshare_device_stranger_memory_bytes{") {
			return fmt.Errorf("strangers are shown that have gone")
		}
		return nil
	})
	for name, of := range map[string]*user.User{"exempt": operator, "tenant": u, "whole": u} {
		if events, err := of.Said(ctx, name); err != nil || strings.Contains(strings.Join(events, "\n"), "DeviceUsedWithoutShare") {
			t.Errorf("%s is taken for a stranger: %v, %v", name, events, err)
		}
	}
}

const (
	// exemptNamespace is one that the chart exempts by default.
	exemptNamespace = "gpu-operator"
	// hostProgram is what the node says of a program that no pod has.
	hostProgram = "(cudaclient) of the host, outside of all pods, has "
)

// namesAll has a pod's container name every device, and be run by NVIDIA's runtime.
func namesAll(p *corev1.Pod) {
	p.Spec.RuntimeClassName = ptr.To("nvidia")
	p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"})
}

// leftBehind kills a pod with a share while its kubelet does nothing, so that its process stays on
// the device when the share is taken back.
func (w *world) leftBehind(ctx context.Context, t *testing.T, u *user.User, name string) {
	t.Helper()
	p, err := u.Get(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	defer w.freeze(t, sandbox.Kubelet)()
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
	if err := w.cluster.Client().CoreV1().Pods(p.Namespace).Delete(ctx, name, now); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w.leftover = "of the pod with UID " + string(p.UID) + ", which this node does not know any more, has "
	if err := w.nodeSaid(ctx, "DeviceUsedWithoutShare", w.leftover); err != nil {
		t.Error(err)
	}
	t.Logf("what the killed pod has left was told after %s", time.Since(began).Round(time.Second))
}

// testFalseAlarms looks back at all that the other suites did: nobody was taken for a stranger but
// those who were, among them processes that outlive a pod that was deleted at once.
func testFalseAlarms(t *testing.T, w *world) {
	list, err := w.cluster.Client().CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, e := range list.Items {
		if e.Reason != "DeviceUsedWithoutShare" {
			continue
		}
		told++
		of := e.InvolvedObject
		known := of.Kind == "Pod" && of.Namespace == "strangers" && slices.Contains([]string{"privileged", "names-all"}, of.Name) ||
			of.Kind == "Node" && (strings.Contains(e.Message, hostProgram) || w.leftover != "" && strings.Contains(e.Message, w.leftover) || outlives(&e, list.Items))
		if !known {
			t.Errorf("%s %s/%s: %s", of.Kind, of.Namespace, of.Name, e.Message)
		}
	}
	t.Logf("%d events, %d of them about strangers", len(list.Items), told)
}

// outlives reports whether an event tells of a process of a pod that its kubelet was ending
// already. Suites delete pods without a grace period: they are gone at once, and on a slow machine
// their containers run on for longer than it takes to tell of them.
func outlives(told *corev1.Event, all []corev1.Event) bool {
	_, after, _ := strings.Cut(told.Message, "of the pod with UID ")
	uid, _, left := strings.Cut(after, ", which this node does not know any more,")
	return left && slices.ContainsFunc(all, func(e corev1.Event) bool {
		return e.Reason == "Killing" && string(e.InvolvedObject.UID) == uid && !told.FirstTimestamp.Before(&e.FirstTimestamp)
	})
}

// used expects a container to use at least so much memory, and at most a context's more.
func used(page string, u *user.User, name string, mib float64) error {
	const context = 1024
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "deviceshare_container_memory_used_bytes{") || !strings.Contains(line, fmt.Sprintf(`namespace="%s",node="%s",pod="%s"`, u.Namespace(), sandbox.NodeName, name)) {
			continue
		}
		var bytes float64
		if _, err := fmt.Sscan(line[strings.LastIndex(line, "} ")+2:], &bytes); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		if got := bytes / (1 << 20); got < mib || got > mib+context {
			return fmt.Errorf("%s uses %v MiB, want %v and a context", name, got, mib)
		}
		return nil
	}
	return fmt.Errorf("nothing says what %s uses", name)
}

// shows waits until the device plugin's metrics are as wanted.
func (w *world) shows(ctx context.Context, t *testing.T, isWanted func(page string) error) {
	t.Helper()
	reader, err := w.cluster.ReaderToken(ctx)
	if err != nil {
		t.Fatal(err)
	}
	address, err := w.cluster.PagesOf(ctx, sandbox.DevicePlugin)
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, page, err := sandbox.GetPage(ctx, address+"/metrics", reader)
		wrong := err
		if err == nil {
			if wrong = isWanted(string(page)); wrong == nil {
				return
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("the metrics are not as wanted: %v\n%s", wrong, page)
		}
		sleep(ctx, 500*time.Millisecond)
	}
}
