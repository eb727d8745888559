// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// testStrangers uses devices without a share: a program of the host, and a privileged pod that asks
// for nothing. Both are told, and pods with shares are not.
func testStrangers(t *testing.T, w *world) {
	ctx, u := w.user(t, "strangers", 2*time.Minute)
	began := time.Now()
	hostCtx, endHost := context.WithCancel(ctx)
	defer endHost()
	go func() { _, _ = w.cluster.UseGPU(hostCtx, "device", "3", "alloc", "70", "forever") }()
	stranger := pod("stranger").App("main", workload.Ask{}, "alloc", "60", "forever").Edit(w.cluster.TakeDevices).Build()
	tenant := pod("tenant").App("main", workload.Ask{Number: 1, Memory: 1000}, "alloc", "500", "forever").Build()
	whole := pod("whole").App("main", workload.Ask{Number: 1}, "alloc", "2000", "forever").Build()
	if err := u.Create(ctx, stranger, tenant, whole); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitEvent(ctx, "stranger", "DeviceUsedWithoutShare", "of container main has ", "of which it was given nothing"); err != nil {
		log, _ := u.Log(ctx, "stranger", "main")
		t.Fatalf("%v; its log is\n%s", err, log)
	}
	if err := w.nodeSaid(ctx, "DeviceUsedWithoutShare", "(cudaclient) of the host, outside of all pods, has "); err != nil {
		t.Fatal(err)
	}
	t.Logf("both were told within %s of their start", time.Since(began).Round(time.Second))
	w.shows(ctx, t, func(page string) error {
		for _, want := range []string{
			fmt.Sprintf(`namespace="%s",pod="stranger"} `, u.Namespace()), `namespace="",pod=""} `,
		} {
			if !strings.Contains(page, want) {
				return fmt.Errorf("no stranger with %s", want)
			}
		}
		return used(page, u, "whole", 2000)
	})
	if err := u.Delete(ctx, "stranger"); err != nil {
		t.Fatal(err)
	}
	endHost()
	w.shows(ctx, t, func(page string) error {
		if strings.Contains(page, "deviceshare_device_stranger_memory_bytes{") {
			return fmt.Errorf("strangers are shown that have gone")
		}
		return nil
	})
	for _, name := range []string{"tenant", "whole"} {
		if events, err := u.Said(ctx, name); err != nil || strings.Contains(strings.Join(events, "\n"), "DeviceUsedWithoutShare") {
			t.Errorf("%s is taken for a stranger: %v, %v", name, events, err)
		}
	}
}

// used expects a container to use at least so much memory, and at most a context's more.
func used(page string, u *user.User, name string, mib float64) error {
	const context = 1024
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "deviceshare_container_memory_used_bytes{") || !strings.Contains(line, fmt.Sprintf(`namespace="%s",pod="%s"`, u.Namespace(), name)) {
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
