// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/workload"
	"deviceshare/sharing/wire"
)

// fipsOnly is how Go's cryptography is told to fail outside of FIPS 140-3.
const fipsOnly = "GODEBUG=fips140=only"

// testFIPS installs the value `fips: only`, with which cryptography outside of FIPS 140-3 is an
// error: pods of every mode run with signed placements, wrong ones are refused, and the page shows
// them. The images of the FIPS flavour, which a release has, are the usual ones under their names
// here: Go enforces the same without the frozen module.
func testFIPS(t *testing.T, w *world) {
	ctx, u := w.user(t, "fips", 6*time.Minute)
	if err := w.cluster.TagProduct(ctx, w.productTag(ctx, t)+"-fips"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*2*time.Minute)
		defer cancel()
		w.upgradeWithKeeper(ctx, t)
	})
	w.upgradeWithKeeper(ctx, t, "fips=only", "placements.signed=require", "view.page.enabled=true")
	w.enforceFIPS(ctx, t)
	w.enterManyModes(ctx, t, u)
	t.Cleanup(func() { w.leaveManyModes(t, u) })
	everyMode(ctx, t, u)
	if err := u.Create(ctx, pod("wrong").App("main", workload.Ask{Number: 1}, "forever").Annotate(wire.UserMode, "fast").Build()); err == nil {
		t.Error("the webhook refuses no pod")
	}
	url := w.web(ctx, t)
	reply, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if text, err := io.ReadAll(reply.Body); err != nil || reply.StatusCode != http.StatusOK || !strings.Contains(string(text), "<html") {
		t.Errorf("the page answers %s, %v:\n%s", reply.Status, err, text)
	}
	w.ledgersAgree(ctx, t)
}

// upgradeWithKeeper is upgrade, and replaces the keeper of MPS daemons as well, which updates leave
// alone.
func (w *world) upgradeWithKeeper(ctx context.Context, t *testing.T, sets ...string) {
	t.Helper()
	w.upgradeWaiting(ctx, t, "--wait=legacy", sets...)
	w.replaceKeeper(ctx, t)
}

// enforceFIPS expects that the program of each component was told so.
func (w *world) enforceFIPS(ctx context.Context, t *testing.T) {
	t.Helper()
	told := w.runOnNode(ctx, t, `for p in $(grep -lzx '%s' /proc/[0-9]*/environ 2>/dev/null); do tr '\0' ' ' < "${p%%/environ}/cmdline"; echo; done`, fipsOnly)
	for component, program := range map[string]string{
		sandbox.Scheduler: "deviceshare-scheduler ", sandbox.Webhook: "deviceshare-webhook ", pageComponent: "deviceshare-view ",
		sandbox.DevicePlugin: "deviceshare-device-plugin --", sandbox.Keeper: "deviceshare-device-plugin keep ",
	} {
		if w.onlyPodOf(ctx, t, component); !strings.Contains(told, program) {
			t.Errorf("no program of the %s has %s, only these:\n%s", component, fipsOnly, told)
		}
	}
}
