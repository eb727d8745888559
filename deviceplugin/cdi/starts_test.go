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
// when it had the time that its reader says. It returns how long that was.
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
			once, err := reader.Read(t.Context())
			if err != nil {
				t.Error(err)
			}
			time.Sleep(3*once - time.Since(begin))
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
// next. A pipe among the specifications holds each look until somebody opens the other end.
func TestWhoeverAsksDuringALookGetsTheNext(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.json")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader := NewReader(dir)
	ask := func() chan error {
		answer := make(chan error, 1)
		go func() {
			_, err := reader.Read(t.Context())
			answer <- err
		}()
		return answer
	}
	// letGo waits until a look has come to the pipe, and lets it go on.
	letGo := func() {
		end, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = end.Close() }()
	}
	begun := func() bool {
		reader.mu.Lock()
		defer reader.mu.Unlock()
		return reader.next == nil
	}
	reader.reading.Lock()
	first := ask()
	for begun() { // it has not asked yet
		time.Sleep(time.Millisecond)
	}
	reader.reading.Unlock()
	for !begun() {
		time.Sleep(time.Millisecond)
	}
	second, third := ask(), ask()
	for begun() {
		time.Sleep(time.Millisecond)
	}
	letGo()
	if err := <-first; err != nil {
		t.Error(err)
	}
	select {
	case <-second:
		t.Error("who asked during a look was answered with it")
	case <-third:
		t.Error("who asked during a look was answered with it")
	case <-time.After(50 * time.Millisecond):
	}
	letGo()
	for _, answer := range []chan error{second, third} {
		if err := <-answer; err != nil {
			t.Error(err)
		}
	}
}

func TestALookThatDoesNotEndIsNotWaitedFor(t *testing.T) {
	reader := NewReader(t.TempDir())
	reader.reading.Lock() // a disk that hangs
	defer reader.reading.Unlock()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := reader.Read(ended); err == nil {
		t.Error("it was waited for")
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
