// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/report"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// What a container may write of what it is given, in bytes: see docs/adr/0022.
var writable = map[string]int64{"/tmp/vgpu/junk": 4 << 20, ".demand": 4096}

// Root in a container fills every file of the node that it can write, and takes leases on those
// that it can read. The node's disk does not notice, other pods start meanwhile, and all of it is
// gone with the pod.
func testGreedyContainer(t *testing.T, w *world) {
	ctx, u := w.user(t, "greedy", 3*time.Minute)
	share := workload.Ask{Number: 1, Memory: 1000, Cores: 20}
	p := pod("greedy").App("main", share, "info", "grow", "/tmp/vgpu/junk", "grow", "/usr/local/vgpu/neighbours/*.demand",
		"grow", "/usr/local/vgpu/limits", "grow", "/etc/ld.so.preload", "lease", "/usr/local/vgpu/libvgpu.so",
		"lease", "/usr/local/vgpu/limits", "lease", "/etc/ld.so.preload", "forever").Build()
	usual := visitor(ctx, t, u, "before", share)
	if err := u.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	p, err := u.WaitRunning(ctx, "greedy")
	if err != nil {
		t.Fatal(err)
	}
	log, err := u.WaitLog(ctx, "greedy", "main", "forever")
	if err != nil {
		t.Fatal(err)
	}
	wroteLittle(t, log)
	if !strings.Contains(log, "lease path=/etc/ld.so.preload error=none") {
		t.Errorf("it has no lease, so nothing is tried:\n%s", log)
	}
	for n := range 4 {
		// Who opens a file with a lease waits for 45 s.
		if took := visitor(ctx, t, u, fmt.Sprintf("other-%d", n), share); took > 3*usual+40*time.Second {
			t.Errorf("pod %d took %s beside it, and %s before", n, took, usual)
		}
	}
	if err := u.Delete(ctx, "greedy"); err != nil {
		t.Fatal(err)
	}
	w.nothingLeftOf(ctx, t, p)
}

// wroteLittle looks at what the container could write.
func wroteLittle(t *testing.T, log string) {
	t.Helper()
	seen := 0
	for line := range strings.Lines(log) {
		path := report.Field(line, "grow", "path")
		if path == "" {
			continue
		}
		most := int64(0)
		for end, bytes := range writable {
			if strings.HasSuffix(path, end) {
				most, seen = bytes, seen+1
			}
		}
		got, err := strconv.ParseInt(report.Field(line, "grow", "bytes"), 10, 64)
		if err != nil || got > most || strings.Contains(line, "error=none") {
			t.Errorf("want %d bytes at most, and a refusal: %s", most, line)
		}
	}
	if seen < len(writable) {
		t.Errorf("%d files were tried, want %d:\n%s", seen, len(writable), log)
	}
}

// visitor lets a pod come and do its work, and returns how long that took.
func visitor(ctx context.Context, t *testing.T, u *user.User, name string, ask workload.Ask) time.Duration {
	t.Helper()
	began := time.Now()
	if err := u.Create(ctx, pod(name).App("main", ask, "info", "alloc", "900", "expect", "ok", "launch", "10").Build()); err != nil {
		t.Fatal(err)
	}
	succeeds(ctx, t, u, name)
	took := time.Since(began)
	t.Logf("%s took %.1f s", name, took.Seconds())
	return took
}

// nothingLeftOf waits until the node has neither files nor mounts of a pod.
func (w *world) nothingLeftOf(ctx context.Context, t *testing.T, p *corev1.Pod) {
	t.Helper()
	began := time.Now()
	script := fmt.Sprintf("ls -d /var/lib/deviceshare/*/containers/%s_* 2>/dev/null; grep %s_ /proc/self/mountinfo; true", p.UID, p.UID)
	for {
		out, err := w.cluster.Run(ctx, "sh", "-c", script)
		if err == nil && strings.TrimSpace(out) == "" {
			t.Logf("nothing is left %.1f s after its end", time.Since(began).Seconds())
			return
		}
		if sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("left on the node: %v\n%s", err, out)
		}
	}
}
