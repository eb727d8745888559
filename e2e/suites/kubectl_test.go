// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// onlyInPod is in a pod that has a share, and is nothing that a capture may hold.
const onlyInPod = "nobody-else-reads-this"

// testKubectl asks `kubectl deviceshare` about a pod that has a share and one that waits. A capture
// answers as the cluster does, and the role of the chart is enough to ask.
func testKubectl(t *testing.T, w *world) {
	ctx, u := w.user(t, "kubectl", 2*time.Minute)
	oneHasOneWaits(ctx, t, u)
	for _, q := range []struct {
		line  string
		words []string
	}{
		{"status", []string{"A100", "H100", "on 1 node", "kubectl/large waits, the scheduler says: "}},
		{"devices " + sandbox.NodeName, []string{sandbox.NodeName, "kubectl/small:main"}},
		{"pods -n kubectl", []string{"small", "main", sandbox.NodeName}},
		{"why large -n kubectl", []string{"kubectl/large waits, the scheduler says: ", "NotEnoughMemory", "What helps: ask for less"}},
		{"why small -n kubectl", []string{"kubectl/small does not wait: it is on node " + sandbox.NodeName}},
	} {
		answer := w.saysTheSameOfACapture(ctx, t, q.line)
		for _, word := range q.words {
			if !strings.Contains(answer, word) {
				t.Errorf("kubectl deviceshare %s does not say %q:\n%s", q.line, word, answer)
			}
		}
	}
	if said := w.deviceshare(ctx, t, "nodetype", sandbox.NodeName); !strings.Contains(said, fmt.Sprintf("/resources/volcano.sh/vgpu-number=%d\n", gpus*10)) {
		t.Errorf("kubectl deviceshare nodetype says %q", said)
	}
	t.Logf("kubectl deviceshare why large:\n%s", w.deviceshare(ctx, t, "why", "large", "-n", "kubectl"))
	w.viewRoleIsEnough(ctx, t)
	w.topKubectl(ctx, t, u)
}

// oneHasOneWaits starts a pod with a share, and one that asks for more memory than a device has.
func oneHasOneWaits(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	small := pod("small").App("main", workload.Ask{Number: 1, Memory: 1000}, "forever").Edit(func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "PASSWORD", Value: onlyInPod})
	})
	large := pod("large").App("main", workload.Ask{Number: 1, Memory: 2 * memoryMiB}, "forever")
	if err := u.Create(ctx, small.Build(), large.Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitRunning(ctx, "small"); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitEvent(ctx, "large", "NotEnoughMemory"); err != nil {
		t.Fatal(err)
	}
}

// deviceshare runs the program as its user does and returns what it prints.
func (w *world) deviceshare(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.cluster.Deviceshare(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// saysTheSameOfACapture asks the cluster and a capture of it. What Volcano writes between the two
// makes a difference, but not each time.
func (w *world) saysTheSameOfACapture(ctx context.Context, t *testing.T, line string) string {
	t.Helper()
	const tries = 5
	dir, args := t.TempDir(), strings.Fields(line)
	for try := 1; ; try++ {
		path := filepath.Join(dir, fmt.Sprintf("cluster-%d.jsonl", try))
		w.deviceshare(ctx, t, "capture", path)
		now := w.deviceshare(ctx, t, args...)
		then := w.deviceshare(ctx, t, append(args, "--from", path)...)
		if now == then {
			keepsSecrets(t, path)
			return now
		}
		if try == tries {
			t.Fatalf("kubectl deviceshare %s says of the cluster\n%s\nand of a capture\n%s", line, now, then)
		}
		sleep(ctx, time.Second)
	}
}

// keepsSecrets looks into a capture.
func keepsSecrets(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"small"`) || strings.Contains(string(text), onlyInPod) {
		t.Errorf("the capture lacks a pod or has its variables:\n%s", text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the capture: %v %v", info, err)
	}
}

// letView gives a user the roles that viewers of devices need.
func (w *world) letView(ctx context.Context, t *testing.T, viewer string) {
	t.Helper()
	const role, configNamespace = "deviceshare-view", "kube-system"
	rbac := w.cluster.Client().RbacV1()
	meta := metav1.ObjectMeta{Name: viewer + "-views-devices"}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: viewer}}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
		defer cancel()
		_ = rbac.ClusterRoleBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{})
		_ = rbac.RoleBindings(configNamespace).Delete(ctx, meta.Name, metav1.DeleteOptions{})
	})
	if _, err := rbac.RoleBindings(configNamespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for { // the API server reads new bindings a moment later; without the second, a problem is shown
		theirs, err := w.cluster.Deviceshare(ctx, "status", "--as", viewer)
		if err == nil && theirs == w.deviceshare(ctx, t, "status") {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("with role %s: %v\n%s", role, err, theirs)
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

// viewRoleIsEnough asks as somebody without rights, who is refused, and who then gets the role.
func (w *world) viewRoleIsEnough(ctx context.Context, t *testing.T) {
	t.Helper()
	const viewer = "carol"
	if out, err := w.cluster.Deviceshare(ctx, "status", "--as", viewer); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("somebody without rights is not refused: %v\n%s", err, out)
	}
	w.letView(ctx, t, viewer)
	w.topRoleIsEnough(ctx, t, viewer)
}
