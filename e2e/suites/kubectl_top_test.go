// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// topRow is what `kubectl deviceshare top -o json` says of one container.
type topRow struct {
	Pod, Container                           string
	Known                                    bool
	MemoryUsed, MemoryAllocated, MemoryLimit int64
	ComputeUsed                              *float64
	ComputeAllocated                         int
}

// topKubectl compares what `top` says with what the containers say of themselves, and asks as
// somebody without its role.
func (w *world) topKubectl(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	held := pod("held").App("main", workload.Ask{Number: 1, Memory: 1000}, "alloc", "600", "expect", "ok", "info", "forever")
	busy := pod("busy").App("main", workload.Ask{Number: 1, Memory: 1000, Cores: 30}, "alloc", "100", "expect", "ok", "info", "busy", "600")
	if err := u.Create(ctx, held.Build(), busy.Build()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"held", "busy"} {
		if _, err := u.WaitRunning(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	for {
		err := topAgrees(ctx, u, w.topRows(ctx, t))
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%v\n%s", err, w.deviceshare(context.Background(), t, "top"))
		}
		sleep(ctx, 500*time.Millisecond)
	}
	t.Logf("kubectl deviceshare top:\n%s", w.deviceshare(ctx, t, "top", sandbox.NodeName))
	if err := u.Delete(ctx, "held"); err != nil {
		t.Fatal(err)
	}
	if err := u.Delete(ctx, "busy"); err != nil {
		t.Fatal(err)
	}
}

// topRows asks for the containers of namespace kubectl.
func (w *world) topRows(ctx context.Context, t *testing.T) map[string]topRow {
	t.Helper()
	var nodes []struct {
		Unread  string
		Devices []struct{ Containers []topRow }
	}
	text := w.deviceshare(ctx, t, "top", "-o", "json")
	if err := json.Unmarshal([]byte(text), &nodes); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	rows := map[string]topRow{}
	for _, n := range nodes {
		for _, d := range n.Devices {
			for _, c := range d.Containers {
				if name, ours := strings.CutPrefix(c.Pod, "kubectl/"); ours {
					rows[name] = c
				}
			}
		}
	}
	return rows
}

// topAgrees compares with what the containers have written into their logs.
func topAgrees(ctx context.Context, u *user.User, rows map[string]topRow) error {
	const page, limit = 2 << 20, 1000 << 20
	for _, name := range []string{"held", "busy"} {
		log, err := u.Log(ctx, name, "main")
		if err != nil {
			return err
		}
		lines := strings.Split(log, "\n")
		i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "info index=0 ") })
		if i < 0 {
			return fmt.Errorf("%s has not said yet what it has: %s", name, log)
		}
		itself := number(lines[i], "meminfo_total") - number(lines[i], "meminfo_free")
		got, there := rows[name]
		if !there || !got.Known || max(got.MemoryUsed-itself, itself-got.MemoryUsed) > page || itself < 100<<20 {
			return fmt.Errorf("of %s top says %+v, it says %d bytes of itself", name, got, itself)
		}
		if got.MemoryAllocated != limit || got.MemoryLimit != limit {
			return fmt.Errorf("of %s top says %+v, it was given %d bytes", name, got, limit)
		}
	}
	// A container may use what nobody else wants: only an idle one is at a known figure.
	if c := rows["busy"].ComputeUsed; c == nil || *c < 5 || *c > 101 || rows["busy"].ComputeAllocated != 30 {
		return fmt.Errorf("of busy, with 30%% of a device, top says %+v", rows["busy"])
	}
	if c := rows["held"].ComputeUsed; c != nil && *c > 1 {
		return fmt.Errorf("held computes nothing, and top says %v%%", *c)
	}
	return nil
}

// topRoleIsEnough asks as a viewer, who is refused, and who then gets the role of top.
func (w *world) topRoleIsEnough(ctx context.Context, t *testing.T, viewer string) {
	t.Helper()
	const role = "deviceshare-top"
	if out, err := w.cluster.Deviceshare(ctx, "top", "--as", viewer); err == nil || !strings.Contains(err.Error(), "you need Role "+role) {
		t.Errorf("a viewer without the role of top is not told so: %v\n%s", err, out)
	}
	rbac := w.cluster.Client().RbacV1().RoleBindings(sandbox.Namespace)
	meta := metav1.ObjectMeta{Name: viewer + "-sees-use"}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
		defer cancel()
		_ = rbac.Delete(ctx, meta.Name, metav1.DeleteOptions{})
	})
	if _, err := rbac.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: viewer}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		out, err := w.cluster.Deviceshare(ctx, "top", "--as", viewer)
		if err == nil && !strings.Contains(out, "does not say what is used") {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("with role %s: %v\n%s", role, err, out)
		}
		sleep(ctx, 200*time.Millisecond)
	}
}
