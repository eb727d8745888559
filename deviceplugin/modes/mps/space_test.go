// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"deviceshare/sharing"
)

func TestWhatContainersCanWriteHasALimitWhileTheDeviceIsInTheMode(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	shm, pipe := filepath.Join(h.directories, "GPU-a", "shm"), filepath.Join(h.directories, "GPU-a", "pipe")
	if b := h.bounds[shm]; b.Size != 64*sharing.MiB || b.Mode != os.ModeSticky|0o777 {
		t.Errorf("/dev/shm is %+v", b)
	}
	if b := h.bounds[pipe]; b.Size <= 0 || !b.NoLinks {
		t.Errorf("the pipe directory is %+v", b)
	}
	err := h.fresh().Leave(context.Background(), gpu())
	for _, dir := range []string{shm, pipe} {
		if b, there := h.bounds[dir]; there || err != nil {
			t.Errorf("in another mode %s is %+v (%v)", dir, b, err)
		}
	}
}

func TestTheLastContainerOfADeviceLeavesAnEmptyShm(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid-1", "main"))
	inject(t, h, asks("uid-2", "main"))
	left := filepath.Join(h.directories, "GPU-a", "shm", "left")
	if err := os.WriteFile(left, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, owner := range []sharing.Owner{"uid-1", "uid-2"} {
		if err := h.fresh().Unprepare(context.Background(), owner); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(left); (err == nil) != (i == 0) {
			t.Errorf("after %s: %v", owner, err)
		}
	}
}

func TestTheFirstContainerOfADeviceFindsAnEmptyShm(t *testing.T) {
	h := newHost(t)
	left := filepath.Join(h.directories, "GPU-a", "shm", "left")
	if err := os.MkdirAll(filepath.Dir(left), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	inject(t, h, asks("uid", "main"))
	if _, err := os.Stat(left); err == nil {
		t.Error("it finds what somebody left")
	}
}

func TestADaemonStartsInAnEmptyPipeDirectory(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	trap := filepath.Join(h.directories, "GPU-a", "pipe", "control.pid")
	if err := os.Symlink("/etc/passwd", trap); err != nil {
		t.Fatal(err)
	}
	h.kill("GPU-a")
	inject(t, h, asks("uid", "main"))
	if _, err := os.Lstat(trap); err == nil {
		t.Error("a trap of a container was left for the daemon")
	}
}

func TestADaemonOfBeforeTheLimitsIsReplacedOnceNobodyUsesIt(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	path := filepath.Join(h.directories, "GPU-a", "started")
	if err := os.WriteFile(path, []byte("pid 101\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	inject(t, h, asks("uid", "main"))
	if h.starts != 2 {
		t.Errorf("%d starts", h.starts)
	}
}

func TestADeviceDoesNotEnterTheModeWhereNothingCanBeMounted(t *testing.T) {
	h := newHost(t)
	h.noSpace = errors.New("mount: not permitted")
	if err := h.fresh().Enter(context.Background(), gpu()); !errors.Is(err, h.noSpace) {
		t.Errorf("the answer is %v", err)
	}
}
