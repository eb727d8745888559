// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

func TestSharedMemoryIsWhatThePodsOfADeviceMayHaveTogether(t *testing.T) {
	has := func(owner sharing.Owner, device sharing.DeviceID, shm sharing.Bytes) claimRecord {
		return claimRecord{owner: owner, Device: device, Shm: shm}
	}
	const each, most = sharing.GiB, 64 * sharing.GiB
	for name, tc := range map[string]struct {
		all  []claimRecord
		most sharing.Bytes
		want sharing.Bytes
	}{
		"a device without pods":                    {nil, most, each},
		"a pod that says nothing":                  {[]claimRecord{has("a", "GPU-a", 0)}, most, each},
		"a pod that says less":                     {[]claimRecord{has("a", "GPU-a", 256*sharing.MiB)}, most, 256 * sharing.MiB},
		"two pods":                                 {[]claimRecord{has("a", "GPU-a", 8*sharing.GiB), has("b", "GPU-a", 0)}, most, 9 * sharing.GiB},
		"two containers of one pod":                {[]claimRecord{has("a", "GPU-a", 8*sharing.GiB), has("a", "GPU-a", 4*sharing.GiB)}, most, 8 * sharing.GiB},
		"a pod on another device":                  {[]claimRecord{has("a", "GPU-b", 8*sharing.GiB), has("b", "GPU-a", 0)}, most, each},
		"more than the node gives out":             {[]claimRecord{has("a", "GPU-a", 1<<60)}, most, most},
		"what other devices leave of the node":     {[]claimRecord{has("a", "GPU-b", 60*sharing.GiB), has("b", "GPU-a", 8*sharing.GiB)}, most, 4 * sharing.GiB},
		"a node that has given out all":            {[]claimRecord{has("a", "GPU-b", 1<<60), has("b", "GPU-a", 8*sharing.GiB)}, most, shmLeast},
		"amounts that no number holds together":    {[]claimRecord{has("a", "GPU-a", sharing.MaxBytes), has("b", "GPU-a", sharing.MaxBytes)}, most, most},
		"a record that somebody has made negative": {[]claimRecord{has("a", "GPU-a", -5)}, most, each},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shmSize("GPU-a", tc.all, each, tc.most); got != tc.want {
				t.Errorf("it is %d MiB, want %d", got/sharing.MiB, tc.want/sharing.MiB)
			}
		})
	}
}

// saying is a claim of a pod that says what it may have in /dev/shm.
func saying(c modes.Claim, shm sharing.Bytes) modes.Claim {
	c.SharedMemory = shm
	return c
}

// Eight workers of a PyTorch loader have 2 batches each: 16 of 64 pictures of 3 x 224 x 224
// floats. Beside that lie 8 segments of NCCL with the largest that it is known to make.
func TestLoadersWithEightWorkersAndSegmentsOfNCCLFitWherePodsSayNothing(t *testing.T) {
	const batch, segment = 64 * 3 * 224 * 224 * 4, 33030528
	if need, got := sharing.Bytes(16*batch+8*segment), shmSize("GPU-a", nil, sharing.GiB, 8*sharing.GiB); need > got {
		t.Errorf("they need %d MiB and there are %d", need/sharing.MiB, got/sharing.MiB)
	}
}

// Pods come and go in any order. The size is never below what those that are there may have, and
// goes back when the last has gone.
func TestSharedMemoryGrowsWithThePodsThatCome(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	h := newHost(t)
	shm := filepath.Join(h.directories, "GPU-a", "shm")
	there := map[sharing.Owner]sharing.Bytes{}
	for turn := range 120 {
		owner := sharing.Owner(fmt.Sprintf("uid-%d", random.IntN(5)))
		if _, is := there[owner]; is {
			if err := h.fresh().Unprepare(context.Background(), owner); err != nil {
				t.Fatal(err)
			}
			delete(there, owner)
		} else {
			there[owner] = sharing.Bytes(random.IntN(8)) * 100 * sharing.MiB
			inject(t, h, saying(asks(owner, "main"), there[owner]))
		}
		var want sharing.Bytes
		for _, asked := range there {
			if asked == 0 {
				asked = 64 * sharing.MiB
			}
			want += asked
		}
		got := h.bounds[shm].Size
		if got < want || len(there) == 0 && got > 64*sharing.MiB {
			t.Fatalf("turn %d: /dev/shm has %d MiB for %v", turn, got/sharing.MiB, there)
		}
	}
}

func TestATmpfsGrowsAndShrinksOnlyWhereItMay(t *testing.T) {
	dir := t.TempDir()
	mib := func(n int, atLeast bool) host.Bound {
		return host.Bound{Size: sharing.MiBs(int64(n)), Mode: shmMode, AtLeast: atLeast}
	}
	if err := (Tmpfs{}).Limit(dir, mib(4, true)); err != nil {
		t.Skip(err) // as for users other than root
	}
	t.Cleanup(func() {
		if err := (Tmpfs{}).Release(dir); err != nil {
			t.Error(err)
		}
	})
	size := func(want int) {
		t.Helper()
		if got := sizeOf(t, dir); got != int64(want)<<20 {
			t.Errorf("it has %d bytes, want %d MiB", got, want)
		}
	}
	for _, step := range []struct {
		do   func() error
		want int
	}{
		{func() error { return (Tmpfs{}).Limit(dir, mib(8, true)) }, 8},
		{func() error { return (Tmpfs{}).Limit(dir, mib(2, true)) }, 8},
		{func() error { return (Tmpfs{}).Empty(dir, mib(16, false)) }, 8},
		{func() error { return (Tmpfs{}).Empty(dir, mib(2, false)) }, 2},
	} {
		if err := step.do(); err != nil {
			t.Error(err)
		}
		size(step.want)
	}
	kept := open(t, filepath.Join(dir, "server"), 1<<20)
	defer func() { _ = kept.Close() }()
	if err := (Tmpfs{}).Empty(dir, host.Bound{Size: sharing.MiB / 2, Mode: shmMode}); err != nil {
		t.Error(err)
	}
	size(2) // the server uses more
}

func sizeOf(t *testing.T, dir string) int64 {
	t.Helper()
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		t.Fatal(err)
	}
	return int64(stat.Blocks) * stat.Bsize
}

// open makes a file of so many bytes and keeps it open.
func open(t *testing.T, path string, size int) *os.File {
	t.Helper()
	file, err := os.Create(path)
	if err == nil {
		_, err = file.Write(make([]byte, size))
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}
