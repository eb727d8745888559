// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// However long it means to wait, since its lists were not read again and again: a kubelet that
// starts is not kept waiting.
func TestAKubeletThatStartsEndsEveryWait(t *testing.T) {
	where := &registrationTarget{with: theKubelet, directory: t.TempDir(), moved: make(chan struct{})}
	watcher, err := where.watchDirectory()
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	s := &Server{tick: time.Second}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.awaitKubelet(context.Background(), where, watcher, time.Hour)
	}()
	for _, name := range []string{"another.sock", kubeletSocket} {
		select {
		case <-over:
			t.Fatalf("it waited until before %s was made", name)
		case <-time.After(10 * time.Millisecond):
		}
		if err := os.WriteFile(filepath.Join(where.directory, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-over:
	case <-time.After(10 * time.Minute):
		t.Fatal("it waits on")
	}
}
