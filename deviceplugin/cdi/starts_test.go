// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/singleflight"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// starts is how many containers start at once, residents how many are there already.
const starts, residents = 60, 250

// containerd is a container runtime that reads specifications as containerd does: with one cache,
// which follows the directory.
func containerd(t testing.TB) (*Directory, *cdi.Cache) {
	t.Helper()
	var ids []string
	for i := range residents {
		ids = append(ids, fmt.Sprint("resident", i))
	}
	dir := written(t, fullDriver(35), injections()["hami-core"], ids...)
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir.Path), cdi.WithAutoRefresh(true))
	if err != nil {
		t.Fatal(err)
	}
	return dir, cache
}

// startAll writes the specifications of that many containers at once, and has the runtime use each
// when its reader has waited. It returns how long that was.
func startAll(t testing.TB, dir *Directory, cache *cdi.Cache, round int) []time.Duration {
	t.Helper()
	reader := NewReader(dir.Path)
	driver, err := DriverSpec(fullDriver(35))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	took := make([]time.Duration, starts)
	for i := range starts {
		all.Go(func() {
			id := fmt.Sprint("start", round, "-", i)
			text, err := Spec(id, fullDriver(35), nil, injections()["hami-core"])
			if err == nil {
				_, err = dir.Write(id, driver, text)
			}
			if err != nil {
				t.Error(err)
				return
			}
			begin := time.Now()
			if err := reader.Await(t.Context(), 0); err != nil {
				t.Error(err)
			}
			took[i] = time.Since(begin)
			if missing, err := cache.InjectDevices(&oci.Spec{}, DriverName, Name(id)); err != nil {
				t.Errorf("%s starts without %v: %v", id, missing, err)
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}

// No container starts without its devices, however many others are written at that moment.
func TestContainersThatStartAtOnceFindTheirNames(t *testing.T) {
	dir, cache := containerd(t)
	for round := range 2 {
		startAll(t, dir, cache, round)
	}
}

// A look that is under way may miss what was written since it began: whoever asks then gets the
// next. A pipe among the specifications holds each look until its other end is closed.
func TestWhoeverAsksDuringALookGetsTheNext(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.json")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	// hold waits until a look has come to the pipe.
	hold := func() (letGo func() error) {
		end, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		return end.Close
	}
	reader := NewReader(dir)
	first := reader.measureRead()
	letGo := hold()
	second, third := reader.measureRead(), reader.measureRead()
	if err := letGo(); err != nil {
		t.Fatal(err)
	}
	if look := <-first; look.Err != nil {
		t.Error(look.Err)
	}
	select {
	case <-second:
		t.Fatal("who asked during a look was answered with it")
	case <-third:
		t.Fatal("who asked during a look was answered with it")
	case <-time.After(50 * time.Millisecond):
	}
	if err := hold()(); err != nil {
		t.Fatal(err)
	}
	for _, answer := range []<-chan singleflight.Result{second, third} {
		if look := <-answer; look.Err != nil || !look.Shared {
			t.Errorf("%v, shared %t", look.Err, look.Shared)
		}
	}
}

func TestALookThatDoesNotEndIsNotWaitedFor(t *testing.T) {
	reader := NewReader(t.TempDir())
	reader.reading.Lock() // a disk that hangs
	defer reader.reading.Unlock()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := reader.Await(ended, 0); err == nil {
		t.Error("it was waited for")
	}
}

func TestAStartWaitsAtLeastAsLongAsItIsTold(t *testing.T) {
	begin := time.Now()
	if err := NewReader(t.TempDir()).Await(t.Context(), 50*time.Millisecond); err != nil || time.Since(begin) < 50*time.Millisecond {
		t.Errorf("waited %s: %v", time.Since(begin), err)
	}
}

// BenchmarkStarts has 60 containers start at once beside 250 others.
func BenchmarkStarts(b *testing.B) {
	dir, cache := containerd(b)
	var all []time.Duration
	for round := 0; b.Loop(); round++ {
		all = append(all, startAll(b, dir, cache, round)...)
		b.StopTimer()
		for i := range starts {
			if err := dir.Remove(fmt.Sprint("start", round, "-", i)); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Milliseconds()), "median-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Milliseconds()), "p99-ms")
}
