// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sockets is a short directory: the path of a socket has a limit.
func sockets(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestAPrivateSocketIsItsOwnersOnly(t *testing.T) {
	path := filepath.Join(sockets(t), "k", "s")
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := ListenPrivate(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v; want %v", p, info.Mode(), err, want)
		}
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		_ = conn.Close()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if names, err := (OS{}).List(filepath.Dir(path)); err != nil || len(names) > 0 {
		t.Errorf("left are %v, %v", names, err)
	}
}

func TestASecondProcessWaitsForThePrivateSocket(t *testing.T) {
	path := filepath.Join(sockets(t), "s")
	first, err := ListenPrivate(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := ListenPrivate(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second one gets %v", err)
	}
	got := make(chan error, 1)
	go func() {
		second, err := ListenPrivate(context.Background(), path)
		if err == nil {
			err = second.Close()
		}
		got <- err
	}()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestASocketThatAProcessLeftBehindIsReplaced(t *testing.T) {
	path := filepath.Join(sockets(t), "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := ListenPrivate(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestASocketWhosePathIsTooLongIsRefused(t *testing.T) {
	if _, err := ListenPrivate(context.Background(), "/tmp/"+strings.Repeat("x", maxSocketPath)); err == nil || !strings.Contains(err.Error(), "at most 107 bytes") {
		t.Errorf("%v", err)
	}
}
