// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/host/hosttest"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/sharing"
)

// writer has a library to install.
func writer(t *testing.T, space host.Space) *Writer {
	t.Helper()
	dir := t.TempDir()
	library := filepath.Join(dir, "libvgpu.so")
	for path, text := range map[string]string{library: "the library", filepath.Join(dir, "deviceshare-hook"): "the hook"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return New(host.OS{}, space, filepath.Join(dir, "state"), library)
}

// onTmpfs is a writer with real file systems, which are unmounted at the end.
func onTmpfs(t *testing.T) *Writer {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts can be made by root only")
	}
	w := writer(t, host.Tmpfs{})
	t.Cleanup(func() {
		owners, err := w.Owners()
		for _, o := range owners {
			err = errors.Join(err, w.Remove(o))
		}
		if err := errors.Join(err, (host.Tmpfs{}).Release(w.neighboursDir())); err != nil {
			t.Error(err)
		}
	})
	return w
}

// share is the claim of a container that is held to a share of compute.
func share(o sharing.Owner) *modes.Claim {
	return &modes.Claim{ID: "c", Owner: o, Container: "main", Devices: []modes.ClaimedDevice{{
		Share: sharing.Share{Device: "GPU-a", Memory: sharing.GiB, Cores: 30},
	}}}
}

// demandOf is the file that a container can write.
func demandOf(w *Writer, c *modes.Claim) string {
	return filepath.Join(host.Shown(w.neighboursDir()), neighbourName(directoryName(c.Owner, c.Container))+".demand")
}

func TestADemandFileThatItsContainerMadeHugeIsNotRead(t *testing.T) {
	w, c := writer(t, &modestest.Rooms{}), share("uid")
	if _, err := w.Write(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(demandOf(w, c), 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(context.Background(), c); err != nil {
		t.Error(err)
	}
}

func TestAContainerCannotFillTheNode(t *testing.T) {
	w, c := onTmpfs(t), share("uid")
	in, err := w.Write(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range in.Mounts {
		if m.ReadOnly {
			continue
		}
		path := m.Host
		if m.Container == sharedInside {
			path = filepath.Join(path, "junk")
		}
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		var written int64
		for err == nil && written < int64(64*sharing.MiB) {
			var n int
			n, err = file.WriteAt(make([]byte, 64<<10), written)
			written += int64(n)
		}
		if !errors.Is(err, syscall.ENOSPC) || written > int64(sharedSize) {
			t.Errorf("%s took %d bytes, then %v", m.Container, written, err)
		}
		_ = file.Close()
	}
	// It may start again, and go, whatever it left.
	if _, err := w.Write(context.Background(), c); err != nil {
		t.Error(err)
	}
	if err := w.Remove("uid"); err != nil {
		t.Error(err)
	}
	if owners, err := w.Owners(); len(owners) > 0 || err != nil {
		t.Errorf("left are %v (%v)", owners, err)
	}
}

// One container writes on and on in its own file while others come and go.
func TestAGreedyNeighbourKeepsNobodyFromStarting(t *testing.T) {
	w, greedy := onTmpfs(t), share("greedy")
	if _, err := w.Write(context.Background(), greedy); err != nil {
		t.Fatal(err)
	}
	done, stop := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	writing.Go(func() {
		file, err := os.OpenFile(demandOf(w, greedy), os.O_RDWR, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		for at, block := int64(0), make([]byte, os.Getpagesize()); done.Err() == nil; {
			n, _ := file.WriteAt(block, at)
			at += int64(n)
		}
	})
	random := rand.New(rand.NewPCG(1, 1))
	live := map[sharing.Owner]bool{}
	for n := range 300 {
		o := sharing.Owner(fmt.Sprintf("uid-%d", random.IntN(20)))
		if live[o] = !live[o]; live[o] {
			in, err := w.Write(context.Background(), share(o))
			if err != nil || in.Mounts[len(in.Mounts)-1].Host != demandOf(w, share(o)) {
				t.Fatalf("step %d: the container gets %+v, %v", n, in.Mounts, err)
			}
		} else if err := w.Remove(o); err != nil {
			t.Fatalf("step %d: %v", n, err)
		}
	}
	stop()
	writing.Wait()
}

// An uninstallation takes the mounts away; who has a file open, as a container does, goes on with
// it.
func TestAContainerGoesOnWhereItsMountsAreAbandoned(t *testing.T) {
	w, c := onTmpfs(t), share("uid")
	in, err := w.Write(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	region := filepath.Join(w.Dir("uid", "main"), "vgpu", "vgpu.cache")
	if err := os.WriteFile(region, []byte("region"), 0o600); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(region)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for range 2 {
		if err := w.Abandon(); err != nil {
			t.Fatal(err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), w.root) {
		t.Errorf("there are mounts below %s (%v)", w.root, err)
	}
	if got, err := io.ReadAll(open); err != nil || string(got) != "region" {
		t.Errorf("who has the region open reads %q (%v)", got, err)
	}
	again, err := w.Write(context.Background(), c)
	if err != nil || !reflect.DeepEqual(again, in) {
		t.Errorf("a later installation gives %+v (%v), want %+v", again, err, in)
	}
}

func TestALeaseOnWhatItReadsHoldsUpNobody(t *testing.T) {
	w, c := writer(t, &modestest.Rooms{}), share("uid")
	in, err := w.Write(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range in.Mounts {
		info, err := os.Stat(m.Host)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			continue
		}
		file, err := os.Open(m.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		hosttest.Lease(t, file)
	}
	begin := time.Now()
	if _, err := w.Write(context.Background(), c); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 20*time.Second { // lease-break-time is 45 s
		t.Errorf("it took %s", took)
	}
}
