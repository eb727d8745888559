// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
)

// writesVariable says how many random writes the hostile user makes; make hostile sets it.
const writesVariable = "DEVICESHARE_HOSTILE_WRITES"

const (
	// writesPerRound are the writes before the other user's next pod. Half of the rounds are made
	// while the webhook is away.
	writesPerRound = 50
	// longestBlock is for how long a hostile user may keep others from a node, beyond the time
	// that their pods take anyway.
	longestBlock = time.Minute
)

// A user with the role edit in one namespace writes whatever it can think of. Nothing that it says
// about devices counts, no container holds or sees a device that its spec does not ask for, no node
// is blocked, and pods of others run meanwhile.
func testHostileUser(t *testing.T, w *world) {
	turns := max(2, wanted(t, writesVariable, rounds(2, 4)*writesPerRound)/writesPerRound)
	patience := 2*time.Minute + time.Duration(turns)*time.Minute
	ctx, u := w.user(t, "hostile", patience)
	_, other := w.user(t, "bystander", patience)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	h := &hostile{t: t, client: w.editor(ctx, t, u.Namespace()), namespace: u.Namespace(),
		random: rand.New(rand.NewPCG(seed, 0)), answers: map[string]int{}}
	t.Cleanup(func() { w.removeFinalizers(t, u.Namespace()) })

	usual := w.bystander(ctx, t, other, "before", time.Minute)
	var longest time.Duration
	for round := range turns {
		if round == turns/2 {
			if err := w.cluster.StopComponent(sandbox.Webhook); err != nil {
				t.Fatal(err)
			}
		}
		for n := range writesPerRound {
			h.attempt(ctx, fmt.Sprintf("h%d-%d", round, n))
		}
		longest = max(longest, w.bystander(ctx, t, other, fmt.Sprintf("bystander-%d", round), longestBlock+10*usual))
		w.nothingForged(ctx, t)
		w.onlyWhatWasAsked(ctx, t, u)
		w.removeFinalizers(t, u.Namespace())
		if err := u.DeleteAll(ctx); err != nil {
			t.Fatal(err)
		}
		h.made = nil
	}
	if err := w.cluster.StartComponent(sandbox.Webhook); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.WaitReady(ctx, sandbox.Webhook); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d writes, answers: %v; another user's pod was placed after %.1f s before, and after %.1f s at most meanwhile",
		turns*writesPerRound, h.answers, usual.Seconds(), longest.Seconds())
	w.ledgersAgree(ctx, t)
	if h.answers["accepted"] == 0 || h.answers["refused"] == 0 {
		t.Error("not everything can have been accepted, or refused")
	}
}

// bystander runs another user's pod and returns how long it took until it had a node.
func (w *world) bystander(ctx context.Context, t *testing.T, u *user.User, name string, most time.Duration) time.Duration {
	t.Helper()
	p := pod(name).App("main", workload.Ask{Number: 1, Memory: 1000, Cores: 5}, "alloc", "900", "expect", "ok").Build()
	began := time.Now()
	if err := u.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Wait(ctx, name, "a node", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	if took > most {
		t.Errorf("%s: it was placed after %.1f s, want at most %.1f s", name, took.Seconds(), most.Seconds())
	}
	succeeds(ctx, t, u, name)
	return took
}

// onlyWhatWasAsked looks at every pod of the hostile user: a container holds as many devices as its
// spec asks for, with no more memory, and sees no others.
func (w *world) onlyWhatWasAsked(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	pods, err := u.Pods(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		p := &pods[i]
		asked, memory := 0, int64(0)
		if n, ok := p.Spec.Containers[0].Resources.Limits["volcano.sh/vgpu-number"]; ok {
			asked = int(n.Value())
		}
		if m, ok := p.Spec.Containers[0].Resources.Limits["volcano.sh/vgpu-memory"]; ok {
			memory = m.Value()
		}
		if placement, err := user.Placement(p); err == nil && p.Spec.NodeName != "" {
			exactly(t, p.Name, placement, asked, memory)
		}
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			continue
		}
		log, err := u.Log(ctx, p.Name, "main")
		if seen := strings.Count(log, "info index="); err == nil && seen > asked {
			t.Errorf("%s asks for %d devices and sees %d:\n%s", p.Name, asked, seen, log)
		}
	}
}

// exactly checks that a placement gives as many devices as are asked for, and no more memory.
func exactly(t *testing.T, name string, p sharing.Placement, asked int, memory int64) {
	t.Helper()
	held := 0
	for _, c := range p.Containers {
		held += len(c.Shares)
		for _, s := range c.Shares {
			if memory > 0 && s.Memory > sharing.MiBs(memory) {
				t.Errorf("%s asks for %d MiB and holds %v of %s", name, memory, s.Memory, s.Device)
			}
		}
	}
	if held != asked {
		t.Errorf("%s asks for %d devices and holds %d", name, asked, held)
	}
}

// forged marks what the hostile user makes up.
const forged = "made-up"

// nothingForged looks at every pod: what it holds was not made up.
func (w *world) nothingForged(ctx context.Context, t *testing.T) {
	t.Helper()
	pods, err := w.cluster.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		for _, key := range placements() {
			if strings.Contains(pods.Items[i].Annotations[key], forged) {
				t.Errorf("pod %s/%s has a placement that a user made up: %s", pods.Items[i].Namespace, pods.Items[i].Name, pods.Items[i].Annotations[key])
			}
		}
	}
}

// placements are the annotations by which pods hold devices.
func placements() []string {
	return []string{"volcano.sh/vgpu-placement", "volcano.sh/vgpu-node", "volcano.sh/vgpu-ids-new"}
}

// hostile is a user who tries.
type hostile struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
	random    *rand.Rand
	answers   map[string]int
	made      []string
}

func (h *hostile) attempt(ctx context.Context, name string) {
	pods := h.client.CoreV1().Pods(h.namespace)
	var err error
	switch kind := h.random.IntN(20); {
	case len(h.made) > 0 && kind < 9:
		subresource := [][]string{nil, nil, {"status"}, {"ephemeralcontainers"}}[h.random.IntN(4)]
		_, err = pods.Patch(ctx, h.made[h.random.IntN(len(h.made))], types.MergePatchType, []byte(h.patch()), metav1.PatchOptions{}, subresource...)
	case len(h.made) > 0 && kind == 9:
		err = pods.Bind(ctx, h.binding(h.made[h.random.IntN(len(h.made))]), metav1.CreateOptions{})
	default:
		if _, err = pods.Create(ctx, h.pod(name), metav1.CreateOptions{}); err == nil {
			h.made = append(h.made, name)
		}
	}
	if err == nil {
		h.answers["accepted"]++
	} else {
		h.answers["refused"]++
	}
}

// binding binds a pod to the node, with annotations as a scheduler would write them.
func (h *hostile) binding(name string) *corev1.Binding {
	return &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{h.key(): h.lie()}},
		Target: corev1.ObjectReference{Kind: "Node", Name: sandbox.NodeName}}
}

// lie is a text for an annotation.
func (h *hostile) lie() string {
	return []string{
		forged, "", "{", `{"version":1,"node":"` + sandbox.NodeName + `","containers":[{"name":"` + forged + `","kind":"app","shares":[]}]}`,
		`{"version":1,"node":"` + sandbox.NodeName + `","containers":[{"name":"main","kind":"app","shares":[{"uuid":"GPU-` + forged + `","mode":"hami-core","memory":1,"whole":true}]}]}`,
		"GPU-" + forged + ",NVIDIA,80000,100:", strings.Repeat(forged, 5000), strings.Repeat("{[", 100000), sandbox.NodeName,
	}[h.random.IntN(9)]
}

// keys are the annotations that it writes.
func (h *hostile) key() string {
	all := append(placements(), "volcano.sh/bind-phase", "volcano.sh/devices-to-allocate", "volcano.sh/vgpu-mode", "kubernetes.io/config.mirror",
		"scheduling.k8s.io/group-name", "volcano.sh/vgpu-use-gpuuuid")
	return all[h.random.IntN(len(all))]
}

func (h *hostile) pod(name string) *corev1.Pod {
	// Small asks: Volcano counts what jobs ask for before they fit, so that large ones of one user
	// hold back those of all others in the queue, with devices and without.
	ask := workload.Ask{Number: h.random.Int64N(3), Memory: h.random.Int64N(500), Cores: h.random.Int64N(2)}
	return pod(name).App("main", ask, "forever").Edit(func(p *corev1.Pod) {
		for range h.random.IntN(4) {
			p.Annotations[h.key()] = h.lie()
		}
		if h.random.IntN(3) == 0 {
			p.Spec.NodeName = sandbox.NodeName
		}
		if h.random.IntN(4) == 0 {
			p.Finalizers = []string{"example.com/stays"}
		}
		if h.random.IntN(4) == 0 {
			p.Spec.SchedulerName = "default-scheduler"
		}
		grace := int64(1)
		p.Spec.TerminationGracePeriodSeconds = &grace
		// Its pods must not take the devices for good.
		p.Spec.Containers[0].Command = []string{"/usr/bin/cudaclient", "info", "sleep", "1"}
	}).Build()
}

func (h *hostile) patch() string {
	return []string{
		fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, h.key(), h.lie()),
		fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, h.key()),
		`{"metadata":{"finalizers":["example.com/stays"]}}`,
		`{"spec":{"ephemeralContainers":[{"name":"` + forged + `","image":"a","env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"}]}]}}`,
		`{"status":{"phase":"Running"}}`,
	}[h.random.IntN(5)]
}

// editor is a client of a service account with the role edit in a namespace.
func (w *world) editor(ctx context.Context, t *testing.T, namespace string) kubernetes.Interface {
	t.Helper()
	config := rest.AnonymousClientConfig(w.cluster.RestConfig())
	config.BearerToken = w.editorToken(ctx, t, namespace)
	config.QPS, config.Burst = 1000, 2000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// editorToken is a token of an account that has the role edit in a namespace and no other.
func (w *world) editorToken(ctx context.Context, t *testing.T, namespace string) string {
	t.Helper()
	admin := w.cluster.Client()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "editor"}}
	if _, err := admin.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "editor"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account.Name}}}
	if _, err := admin.RbacV1().RoleBindings(namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// removeFinalizers lets pods go that keep themselves.
func (w *world) removeFinalizers(t *testing.T, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	pods := w.cluster.Client().CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	for i := range list.Items {
		if _, err := pods.Patch(ctx, list.Items[i].Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	}
}
