// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/window"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// pageComponent is the page's part in the names of its objects.
const pageComponent = "view"

// testPage opens the page of the installation in a real browser, by `kubectl deviceshare web`. It
// shows what the command line says, and follows the cluster; strangers see nothing.
func testPage(t *testing.T, w *world) {
	ctx, u := w.user(t, "page", 3*time.Minute)
	if _, err := w.cluster.Upgrade(ctx, "--set", "view.page.enabled=true", "--wait"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
		defer cancel()
		if _, err := w.cluster.Upgrade(ctx); err != nil {
			t.Error(err)
		}
	})
	w.enterManyModes(ctx, t, u)
	t.Cleanup(func() { w.leaveManyModes(t, u) })
	everyMode(ctx, t, u)
	b := openWindow(ctx, t)
	load(t, b, w.web(ctx, t))
	t.Run("shows what kubectl deviceshare says", func(t *testing.T) { w.saysTheSame(ctx, t, b) })
	t.Run("follows a pod", func(t *testing.T) { followsAPod(ctx, t, u, b) })
	t.Run("filters", func(t *testing.T) { filters(t, b) })
	t.Run("needs no mouse", func(t *testing.T) { needsNoMouse(t, b) })
	w.takePictures(ctx, t, u, b)
	t.Run("shows strangers nothing", func(t *testing.T) { w.strangersSeeNothing(ctx, t) })
	t.Run("takes names for text", func(t *testing.T) { w.takesNamesForText(ctx, t, b) })
	t.Run("shows 5000 nodes", func(t *testing.T) { w.showsManyNodes(ctx, t, b) })
	if said, err := b.Complaints(); err != nil || len(said) > 0 {
		t.Errorf("%v: the browser complains: %q", err, said)
	}
}

// everyMode starts a pod in each mode, and one that waits.
func everyMode(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	ask := workload.Ask{Number: 1, Memory: 5000}
	names := map[string]sharing.Mode{"in-hami-core": sharing.HAMiCore, "in-mig": sharing.MIG, "in-mps": sharing.MPS, "in-time-slicing": sharing.TimeSlicing}
	for name, m := range names {
		p := pod(name).App("main", ask, "forever").Annotate(wire.UserMode, string(m)).AsUser(1000)
		if err := u.Create(ctx, p.Build()); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Create(ctx, pod("large").App("main", workload.Ask{Number: 1, Memory: 2 * memoryMiB}, "forever").Build()); err != nil {
		t.Fatal(err)
	}
	for name := range names {
		if _, err := u.WaitRunning(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := u.WaitEvent(ctx, "large", "NotEnoughMemory"); err != nil {
		t.Fatal(err)
	}
}

// openWindow opens a browser until the test ends.
func openWindow(ctx context.Context, t *testing.T) *window.Window {
	t.Helper()
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	b, err := window.Open(ctx, repo, func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close the browser: %v", err)
		}
	})
	if err := b.Resize(1400, 1000); err != nil {
		t.Fatal(err)
	}
	return b
}

// web runs `kubectl deviceshare web` until the test ends, and returns the address that it prints.
func (w *world) web(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	cmd := w.cluster.DeviceshareCommand(ctx, append([]string{"web"}, args...)...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	found := lines.Scan()
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was ended
	})
	url, ok := strings.CutPrefix(lines.Text(), "open ")
	if !found || !ok {
		cancel()
		_ = cmd.Wait()
		t.Fatalf("kubectl deviceshare web prints %q %s", lines.Text(), said.String())
	}
	return url
}

// load loads a page and waits until it shows a cluster.
func load(t *testing.T, b *window.Window, url string) {
	t.Helper()
	if err := b.Load(url); err != nil {
		t.Fatal(err)
	}
	shows(t, b, `document.body.dataset.version && document.querySelector("#waiting > *")`)
}

// shows waits until an expression of JavaScript is true.
func shows(t *testing.T, b *window.Window, expression string) {
	t.Helper()
	if err := b.Wait("!!("+expression+")", slack*5*time.Second); err != nil {
		var text string
		_ = b.Value("document.body.innerText", &text)
		t.Fatalf("%v; the page shows\n%s", err, text)
	}
}

// shareOf is an expression for a pod of the suite on the page, by its name.
func shareOf(name string) string {
	return fmt.Sprintf(`document.querySelector('.share[data-who*="page/%s:main"]')`, name)
}

// saysTheSame compares devices, sharers and the reason of the pod that waits.
func (w *world) saysTheSame(ctx context.Context, t *testing.T, b *window.Window) {
	var nodes []struct {
		Devices []struct {
			Mode    string
			Sharers []struct{ Pod, Container, Profile string }
		}
	}
	if err := json.Unmarshal([]byte(w.deviceshare(ctx, t, "devices", "-o", "json")), &nodes); err != nil {
		t.Fatal(err)
	}
	modes := map[string]bool{}
	for _, n := range nodes {
		for index, d := range n.Devices {
			modes[d.Mode] = true
			strip := fmt.Sprintf(`document.querySelectorAll(".device")[%d]`, index)
			shows(t, b, fmt.Sprintf(`%s.querySelector(".mode").textContent === %q && %[1]s.querySelectorAll(".share").length === %[3]d`, strip, d.Mode, len(d.Sharers)))
			for _, s := range d.Sharers {
				shows(t, b, fmt.Sprintf(`%s.querySelector('.share[data-who*=%q]').dataset.who.endsWith(%q)`, strip, s.Pod+":"+s.Container, s.Profile))
			}
		}
	}
	if len(modes) != 4 {
		t.Errorf("the node is in %d modes", len(modes))
	}
	shows(t, b, `document.querySelectorAll(".strip")[6].querySelectorAll(".slot").length === 7`)
	// Its account may read all that there is to show.
	shows(t, b, `document.querySelector("#live").textContent.startsWith("live, ") && !document.querySelector("#problems").textContent.includes("your rights")`)
	for { // what Volcano writes between the two makes a difference, but not each time
		var why struct{ Answer string }
		if err := json.Unmarshal([]byte(w.deviceshare(ctx, t, "why", "large", "-n", "page", "-o", "json")), &why); err != nil {
			t.Fatal(err)
		}
		var shown string
		if err := b.Value(`document.querySelector('[data-pod="page/large"] p').textContent`, &shown); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(shown, why.Answer) && strings.Contains(why.Answer, "NotEnoughMemory") {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the page says %q, the command line %q", shown, why.Answer)
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

// followsAPod measures how long after the API server the page shows that a pod has come and gone.
func followsAPod(ctx context.Context, t *testing.T, u *user.User, b *window.Window) {
	bound, gone := watchPod(ctx, t, u, "arrives")
	if err := u.Create(ctx, pod("arrives").App("main", workload.Ask{Number: 1, Memory: 3000}, "forever").Build()); err != nil {
		t.Fatal(err)
	}
	shows(t, b, shareOf("arrives"))
	came := time.Since(<-bound)
	if err := u.Delete(ctx, "arrives"); err != nil {
		t.Fatal(err)
	}
	shows(t, b, "!"+shareOf("arrives"))
	left := time.Since(<-gone)
	t.Logf("the page shows a pod %v after it was placed, and its end %v after that", came.Round(time.Millisecond), left.Round(time.Millisecond))
}

// watchPod tells when a pod has got a node, and when it holds nothing any more.
func watchPod(ctx context.Context, t *testing.T, u *user.User, name string) (bound, gone <-chan time.Time) {
	t.Helper()
	events, err := u.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	came, left := make(chan time.Time, 1), make(chan time.Time, 1)
	go func() {
		isBound, isGone := false, false
		for e := range events.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			if !isBound && p.Spec.NodeName != "" {
				isBound = true
				came <- time.Now()
			}
			if ended := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded; !isGone && (ended || e.Type == watch.Deleted) {
				isGone = true
				left <- time.Now()
			}
		}
	}()
	return came, left
}

// filters looks for nodes by names, modes and conditions.
func filters(t *testing.T, b *window.Window) {
	found := func(text string) string {
		return fmt.Sprintf(`document.querySelector("#found").textContent === %q`, text)
	}
	goToField(t, b)
	press(t, b, "page/in-mig")
	shows(t, b, found("1 node")+` && location.hash.includes("in-mig") && document.querySelectorAll(".card").length === 1`)
	press(t, b, "-nobody")
	shows(t, b, found("no node is like that")+` && document.querySelectorAll(".card").length === 0`)
	if err := b.Press("Escape"); err != nil {
		t.Fatal(err)
	}
	shows(t, b, found("1 node"))
	choose := func(field, value string) {
		t.Helper()
		var got string
		expression := fmt.Sprintf(`(() => { const s = document.querySelector("#%s"); s.value = %q; s.dispatchEvent(new Event("change")); return s.value })()`, field, value)
		if err := b.Value(expression, &got); err != nil || got != value {
			t.Fatalf("%s has no choice %q: %v", field, value, err)
		}
	}
	choose("mode", "mig")
	shows(t, b, found("1 node"))
	choose("condition", "trouble")
	shows(t, b, found("no node is like that"))
	choose("condition", "room")
	shows(t, b, found("1 node"))
	if err := b.Value(`document.querySelector("#clear").click()`, nil); err != nil {
		t.Fatal(err)
	}
	shows(t, b, found("1 node")+` && location.hash === "" && document.querySelector("#mode").value === ""`)
}

// goToField goes to the field that finds nodes, by its key.
func goToField(t *testing.T, b *window.Window) {
	t.Helper()
	if err := b.Value(`document.activeElement.blur()`, nil); err != nil {
		t.Fatal(err)
	}
	press(t, b, "/")
	shows(t, b, `document.activeElement.id === "text"`)
}

func press(t *testing.T, b *window.Window, text string) {
	t.Helper()
	if err := b.Type(text); err != nil {
		t.Fatal(err)
	}
}

// needsNoMouse goes to the shares by keys, sees whose they are, and keeps its place while the
// cluster changes.
func needsNoMouse(t *testing.T, b *window.Window) {
	key := func(name string) {
		t.Helper()
		if err := b.Press(name); err != nil {
			t.Fatal(err)
		}
	}
	goToField(t, b)
	for range 10 {
		key("Tab")
		var there bool
		if err := b.Value(`document.activeElement.classList.contains("share")`, &there); err != nil {
			t.Fatal(err)
		}
		if there {
			break
		}
	}
	const first, last = `document.querySelector(".share")`, `[...document.querySelectorAll(".share")].at(-1)`
	says := `document.querySelector(".who").textContent === document.activeElement.dataset.who`
	visible := `document.activeElement.matches(":focus-visible") && getComputedStyle(document.activeElement).outlineStyle !== "none"`
	shows(t, b, `document.activeElement === `+first+" && "+says+" && "+visible)
	for range gpus {
		key("ArrowDown")
	}
	key("End")
	shows(t, b, `document.activeElement === `+last+" && "+says+" && "+visible)
	key("ArrowUp")
	key("ArrowDown")
	key("Home")
	shows(t, b, `document.activeElement.closest(".strip") === `+last+`.closest(".strip") && `+says)
	var names int
	nameless := `[...document.querySelectorAll("button, input, select, summary")].filter((e) => !(e.getAttribute("aria-label") || e.labels?.length || e.textContent.trim())).length`
	if err := b.Value(nameless, &names); err != nil || names > 0 {
		t.Errorf("%d controls have no name: %v", names, err)
	}
}

// strangersSeeNothing asks the pod without a token, and the loopback address without its key.
func (w *world) strangersSeeNothing(ctx context.Context, t *testing.T) {
	pods, err := w.cluster.Client().CoreV1().Pods(sandbox.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=deviceshare-" + pageComponent})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods of the page: %v", len(pods.Items), err)
	}
	own, _, _ := strings.Cut(strings.TrimPrefix(w.web(ctx, t), "http://"), "/")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	pod := "https://" + pods.Items[0].Status.PodIP + ":8443"
	for url, want := range map[string]int{
		pod + "/deviceshare/page/": 401, pod + "/deviceshare/page/data/overview": 401, pod + "/deviceshare/page/data/events": 401,
		pod + "/": 404, pod + "/healthz": 200, "http://" + own + "/data/overview": 403,
	} {
		answer, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %s, want %d", url, answer.Status, want)
		}
	}
	const stranger = "mallory"
	if out, err := w.cluster.Deviceshare(ctx, "web", "--as", stranger); err == nil || !strings.Contains(err.Error(), "you need Role deviceshare-top") {
		t.Errorf("somebody without rights is not refused: %v\n%s", err, out)
	}
}
