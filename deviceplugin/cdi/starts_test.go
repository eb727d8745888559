// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"slices"
	"sync"
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
// as soon as it is there. It returns how long a refresh took each of them.
func startAll(t testing.TB, dir *Directory, cache *cdi.Cache, round int) []time.Duration {
	t.Helper()
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
			if err := cache.Refresh(); err != nil {
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
