// SPDX-License-Identifier: Apache-2.0

package hamicore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deviceshare/deviceplugin/modes"
)

func TestNeighboursSeeWhatAContainerIsEntitledToAndNothingElse(t *testing.T) {
	h, c := newHost(t), claimOf("uid", "main")
	c.Priority = 0
	c.Devices[1].Share.Whole = true
	inject(t, h, c)
	path := filepath.Join(h.root, "neighbours", "shown", neighbour("uid_main"))
	got, err := os.ReadFile(path + ".share")
	want := "vgpu-limits 1\npriority 0\ndevice 0 GPU-a memory=0 cores=30\ndevice 1 GPU-b memory=0 cores=0\n"
	if err != nil || string(got) != want {
		t.Errorf("the share file is\n%s(%v)\nwant\n%s", got, err, want)
	}
	info, err := os.Stat(path + ".demand")
	if err != nil || info.Size() != 512 || info.Mode().Perm() != 0o666 {
		t.Errorf("the demand file is %+v, %v", info, err)
	}
	if strings.Contains(path, "uid") {
		t.Errorf("%s tells whose it is", path)
	}
}

func TestTheDirectoryIsMountedBeforeTheFileInIt(t *testing.T) {
	mounts := inject(t, newHost(t), claimOf("uid", "main")).Mounts
	directory, demand := mounts[len(mounts)-2], mounts[len(mounts)-1]
	if directory.Container != "/usr/local/vgpu/neighbours" || filepath.Dir(demand.Container) != directory.Container {
		t.Errorf("the mounts end with %+v and %+v", directory, demand)
	}
}

func TestARestartKeepsTheDemandFileThatIsMounted(t *testing.T) {
	h, c := newHost(t), claimOf("uid", "main")
	inject(t, h, c)
	path := filepath.Join(h.root, "neighbours", "shown", neighbour("uid_main")+".demand")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("stamps"), 0o600); err != nil {
		t.Fatal(err)
	}
	inject(t, h, c)
	after, err := os.Stat(path)
	if err != nil || !os.SameFile(before, after) || after.Size() != 6 {
		t.Errorf("the file was replaced (%v)", err)
	}
}

func TestOnlyWhoIsHeldToAShareOfComputeHasNeighbours(t *testing.T) {
	cases := map[string]struct {
		change func(*modes.Claim)
		want   bool
	}{
		"a share":                 {func(*modes.Claim) {}, true},
		"a share that is forced":  {func(c *modes.Claim) { c.Policy = "force" }, true},
		"compute is not held":     {func(c *modes.Claim) { c.Policy = "disable" }, false},
		"no share of compute":     {func(c *modes.Claim) { c.Devices[0].Share.Cores = 0 }, false},
		"all of the compute":      {func(c *modes.Claim) { c.Devices[0].Share.Cores = 100 }, false},
		"the share is of a whole": {func(c *modes.Claim) { c.Devices[0].Share.Whole = true }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h, c := newHost(t), claimOf("uid", "main")
			tc.change(&c)
			in := inject(t, h, c)
			text, err := os.ReadFile(filepath.Join(h.root, "containers", "uid_main", "limits"))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(text), "\nborrow "); got != tc.want {
				t.Errorf("the limits file has the word: %v\n%s", got, text)
			}
			if got := len(in.Mounts) == 6; got != tc.want {
				t.Errorf("%d mounts", len(in.Mounts))
			}
		})
	}
}

func TestWhoLeavesIsNoNeighbourAnyMore(t *testing.T) {
	h := newHost(t)
	inject(t, h, claimOf("uid-1", "a"))
	inject(t, h, claimOf("uid-1", "b"))
	inject(t, h, claimOf("uid-2", "a"))
	if err := h.Preparer(-1, false).Unprepare(context.Background(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(h.root, "neighbours", "shown"))
	if err != nil || len(left) != 2 || !strings.HasPrefix(left[0].Name(), neighbour("uid-2_a")) {
		t.Errorf("left are %v, %v", left, err)
	}
}

// neighbour is the name of a container's files among its neighbours': the
// beginning of the SHA-256 of its directory's name.
func neighbour(directory string) string {
	sum := sha256.Sum256([]byte(directory))
	return hex.EncodeToString(sum[:8])
}
