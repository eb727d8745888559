// SPDX-License-Identifier: Apache-2.0

package pairsnode_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/nodeapi"
	"deviceshare/sharing/nodeapi/hostnode"
	"deviceshare/sharing/nodeapi/nodeapitest"
	"deviceshare/sharing/sharingtest/pairs"
	"deviceshare/sharing/sharingtest/pairs/pairsnode"
)

// host is a temporary directory.
type host struct {
	root   string
	latest *nodeapitest.Crashing
}

// Preparer implements nodeapitest.Host.
func (h *host) Preparer(at int, late bool) nodeapi.Preparer {
	h.latest = &nodeapitest.Crashing{Under: hostnode.OS{}, At: at, Late: late}
	return pairsnode.New(h.latest, h.root)
}

// Effects implements nodeapitest.Host.
func (h *host) Effects() int { return h.latest.Effects() }

// State implements nodeapitest.Host.
func (h *host) State() string {
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

func claim(o sharing.Owner, container string) nodeapi.Claim {
	return nodeapi.Claim{
		ID: string(o) + "." + container, Owner: o, Namespace: "default", Pod: "p", Container: container,
		Devices: []nodeapi.ClaimedDevice{{
			Device: sharing.Device{ID: "GPU-a"},
			Share:  sharing.Share{Device: "GPU-a", Mode: pairs.Mode, Memory: sharing.GiB, Cores: 30},
		}},
	}
}

func TestThePreparerPassesTheSuite(t *testing.T) {
	nodeapitest.Preparer(t, func(t *testing.T) nodeapitest.Host {
		return &host{root: filepath.Join(t.TempDir(), "state")}
	}, claim)
}

func TestAnOwnerThatIsNoNameRemovesNothing(t *testing.T) {
	h := &host{root: filepath.Join(t.TempDir(), "state")}
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
