// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/user"
	"deviceshare/e2e/window"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// capturer writes a capture as docs/captures.md describes it.
type capturer struct {
	out *bufio.Writer
	enc *json.Encoder
	err error
}

func (c *capturer) line(kind string, object any) {
	c.err = errors.Join(c.err, c.enc.Encode(map[string]any{"kind": kind, "object": object}))
}

// node has eight devices, each with one pod if it is busy. It is the n-th of its capture.
func (c *capturer) node(n int, name, model string, busy bool) {
	inv := sharing.Inventory{Node: name}
	for i := range 8 {
		inv.Devices = append(inv.Devices, sharing.Device{
			ID: sharing.DeviceID(fmt.Sprintf("GPU-%d-%d", n, i)), Index: i, Model: model, Memory: sharing.MiBs(80000), Cores: 100,
			MaxShares: 10, Healthy: true, Mode: sharing.HAMiCore, NUMA: -1,
		})
	}
	annotations, err := wire.NodeAnnotations(inv, 1)
	c.err = errors.Join(c.err, err)
	c.line("Node", corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{wire.ResourceNumber: resource.MustParse("80")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}})
	for i := 0; busy && i < len(inv.Devices); i++ {
		share := sharing.Share{Device: inv.Devices[i].ID, Mode: sharing.HAMiCore, Memory: sharing.MiBs(30000), Cores: 20}
		placed, err := wire.PlacementAnnotations(sharing.Placement{Node: name,
			Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{share}}}}, 1, 1700000000)
		c.err = errors.Join(c.err, err)
		p := asking(fmt.Sprintf("%s-pod-%d", name, i), 1)
		p.Annotations, p.Spec.NodeName, p.Status.Phase = placed, name, corev1.PodRunning
		c.line("Pod", p)
	}
}

// asking is a pod that waits.
func asking(name string, number int64) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(1767300000, 0))},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{wire.ResourceNumber: *resource.NewQuantity(number, resource.DecimalSI), wire.ResourceMemory: resource.MustParse("30000")},
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// captured writes a capture and returns its path.
func captured(t *testing.T, fill func(*capturer)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewWriter(f)
	c := &capturer{out: out, enc: json.NewEncoder(out)}
	c.err = c.enc.Encode(map[string]any{"deviceshareCapture": 1, "taken": "2026-01-02T03:04:05Z"})
	fill(c)
	if err := errors.Join(c.err, out.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// takesNamesForText shows a cluster whose names are markup. No API server lets all of them in, and
// a capture may hold anything.
func (w *world) takesNamesForText(ctx context.Context, t *testing.T, b *window.Window) {
	const hostile = `</script><img src=x onerror=document.title='hacked'>"'`
	load(t, b, w.web(ctx, t, "--from", captured(t, func(c *capturer) {
		c.node(0, hostile, hostile, true)
		p := asking(hostile, 9)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: hostile}}
		c.line("Pod", p)
		c.line("Queue", map[string]any{"metadata": map[string]any{"name": hostile}})
	})))
	shows(t, b, `document.title === "deviceshare" && document.images.length === 0 && document.scripts.length === 1`)
	for _, part := range []string{"#cards h3", "#groups .kind", "#waiting b", "#waiting p", "#queues td"} {
		shows(t, b, fmt.Sprintf(`document.querySelector(%q).textContent.includes(%q)`, part, hostile))
	}
	shows(t, b, `document.querySelector(".share").dataset.who.includes("<img")`)
	leave(t, b)
}

// showsManyNodes measures how long a page of 5,000 nodes takes to be drawn, and one of its kinds to
// be opened.
func (w *world) showsManyNodes(ctx context.Context, t *testing.T, b *window.Window) {
	url := w.web(ctx, t, "--from", captured(t, func(c *capturer) {
		for i := range 5000 {
			c.node(i, fmt.Sprintf("node-%04d", i), []string{"NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"}[i/4000], i%4 == 0)
		}
		for i := range 200 {
			c.line("Pod", asking(fmt.Sprintf("waits-%03d", i), 9))
		}
	}))
	begun := time.Now()
	load(t, b, url)
	drawn := time.Since(begun)
	shows(t, b, `document.querySelectorAll(".kind").length === 2 && document.querySelectorAll(".card").length === 0`)
	begun = time.Now()
	if err := b.Value(`document.querySelector(".kind").click()`, nil); err != nil {
		t.Fatal(err)
	}
	shows(t, b, `document.querySelectorAll(".card").length === 24 && document.querySelectorAll(".share").length === 6 * 8`)
	opened := time.Since(begun)
	shows(t, b, `document.querySelector("#found").textContent === "1 to 24 of 4,000 nodes"`)
	t.Logf("5,000 nodes with 8 devices each and 10,200 pods are drawn in %v, a kind of nodes is opened in %v", drawn.Round(time.Millisecond), opened.Round(time.Millisecond))
	leave(t, b)
}

// leave closes a page before its server ends: it may just be asking for something.
func leave(t *testing.T, b *window.Window) {
	t.Helper()
	if err := b.Load("about:blank"); err != nil {
		t.Fatal(err)
	}
}

// takePictures takes the pictures of docs/page.md after pods have come and gone for a while, if
// DEVICESHARE_PICTURES names a directory for them.
func (w *world) takePictures(ctx context.Context, t *testing.T, u *user.User, b *window.Window) {
	dir := os.Getenv("DEVICESHARE_PICTURES")
	if dir == "" {
		return
	}
	for i := range 24 {
		p := pod(fmt.Sprintf("train-%d", i)).App("main", workload.Ask{Number: 1, Memory: int64(8000 + 3000*(i%7)), Cores: int64(10 + 10*(i%4))}, "forever")
		if err := u.Create(ctx, p.Annotate(wire.UserMode, string(sharing.HAMiCore)).Annotate(wire.UserPolicy, "spread").Build()); err != nil {
			t.Fatal(err)
		}
		if i%4 == 3 {
			if err := u.Delete(ctx, fmt.Sprintf("train-%d", i-3)); err != nil {
				t.Fatal(err)
			}
		}
		sleep(ctx, 3*time.Second)
	}
	const height = 1150 // all of the page
	if err := b.Resize(1400, height); err != nil {
		t.Fatal(err)
	}
	for _, theme := range []string{"light", "dark"} {
		if err := b.Prefer(theme); err != nil {
			t.Fatal(err)
		}
		picture(t, b, dir, "page-"+theme)
	}
	if err := b.Prefer("light"); err != nil {
		t.Fatal(err)
	}
}

func picture(t *testing.T, b *window.Window, dir, name string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := b.Picture(filepath.Join(dir, name+".png")); err != nil {
		t.Fatal(err)
	}
}
