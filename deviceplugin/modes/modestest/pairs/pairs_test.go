// SPDX-License-Identifier: Apache-2.0

package pairs_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/modestest"
	pairsnode "deviceshare/deviceplugin/modes/modestest/pairs"
	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest/pairs"
)

// fakeHost is a temporary directory.
type fakeHost struct {
	root   string
	latest *modestest.Crashing
}

// Preparer implements modestest.Host.
func (h *fakeHost) Preparer(at int, late bool) modes.Preparer {
	h.latest = &modestest.Crashing{Under: host.OS{}, At: at, Late: late}
	return pairsnode.New(h.latest, h.root)
}

// Effects implements modestest.Host.
func (h *fakeHost) Effects() int { return h.latest.Effects() }

// State implements modestest.Host.
func (h *fakeHost) State() string {
	var b strings.Builder
	_ = filepath.WalkDir(h.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		info, _ := d.Info()
		text, _ := os.ReadFile(path)
		fmt.Fprintf(&b, "%s %v %q\n", strings.TrimPrefix(path, h.root), info.Mode(), text)
		return nil
	})
	return b.String()
}

func claim(o sharing.Owner, container string) modes.Claim {
	return modes.Claim{
		ID: string(o) + "." + container, Owner: o, Namespace: "default", Pod: "p", Container: container,
		Devices: []modes.ClaimedDevice{{
			Device: sharing.Device{ID: "GPU-a"},
			Share:  sharing.Share{Device: "GPU-a", Mode: pairs.Mode, Memory: sharing.GiB, Cores: 30},
		}},
	}
}

func TestThePreparerPassesTheSuite(t *testing.T) {
	modestest.Preparer(t, func(t *testing.T) modestest.Host {
		return &fakeHost{root: filepath.Join(t.TempDir(), "state")}
	}, claim)
}

func TestAnOwnerThatIsNoNameRemovesNothing(t *testing.T) {
	h := &fakeHost{root: filepath.Join(t.TempDir(), "state")}
	if _, err := h.Preparer(-1, false).Prepare(context.Background(), claim("uid", "main")); err != nil {
		t.Fatal(err)
	}
	before := h.State()
	for _, o := range []sharing.Owner{"", ".", "..", "../state", "uid/main", "/"} {
		if err := h.Preparer(-1, false).Unprepare(context.Background(), o); err == nil {
			t.Errorf("owner %q is removed", o)
		}
	}
	if got := h.State(); got != before {
		t.Errorf("the host is\n%s\nwant\n%s", got, before)
	}
}
