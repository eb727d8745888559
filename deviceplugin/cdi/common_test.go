// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
)

// fullDriver is what NVIDIA's toolkit finds of a driver: so many files, hooks, control nodes.
func fullDriver(files int) *specs.ContainerEdits {
	edits := driverEdits()
	for i := range edits.DeviceNodes {
		edits.DeviceNodes[i].HostPath = "/dev/null" // it is looked at
	}
	for i := range files {
		path := fmt.Sprintf("/usr/lib/x86_64-linux-gnu/libnvidia-part%d.so.580.95.05", i)
		edits.Mounts = append(edits.Mounts, bindMount(path, path, true))
	}
	for _, name := range []string{"uvm", "uvm-tools", "modeset"} {
		edits.DeviceNodes = append(edits.DeviceNodes, &specs.DeviceNode{Path: "/dev/nvidia-" + name, HostPath: "/dev/null"})
	}
	edits.Hooks = append(edits.Hooks, &specs.Hook{HookName: "createContainer", Path: "/hook", Args: []string{"hook", "create-symlinks", "--link", "a::b"}})
	return edits
}

// written is a directory with the driver's specification and one of each container.
func written(t testing.TB, common *specs.ContainerEdits, in modes.Injection, ids ...string) *Directory {
	t.Helper()
	dir := &Directory{Files: host.OS{}, Path: t.TempDir()}
	driver, err := DriverSpec(common)
	for _, id := range ids {
		var text []byte
		if err == nil {
			text, err = Spec(id, common, nil, in)
		}
		if err == nil {
			_, err = dir.Write(id, driver, text)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// mountsOf is what is mounted into a container that has these names.
func mountsOf(t *testing.T, dir *Directory, names ...string) []string {
	t.Helper()
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir.Path), cdi.WithAutoRefresh(false))
	if err != nil || len(cache.GetErrors()) > 0 {
		t.Fatal(err, cache.GetErrors())
	}
	spec := &oci.Spec{}
	if _, err := cache.InjectDevices(spec, names...); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range spec.Mounts {
		out = append(out, m.Source+" "+m.Destination)
	}
	return slices.Sorted(slices.Values(out))
}

func TestALibraryStandsInWhicheverSpecificationIsReadFirst(t *testing.T) {
	in := modes.Injection{StandIns: []modes.StandIn{{Library: "libcuda.so", Host: "/state/libcuda.so"}}}
	dir := written(t, fullDriver(3), in, "a")
	one, other := mountsOf(t, dir, DriverName, Name("a")), mountsOf(t, dir, Name("a"), DriverName)
	if !slices.Equal(one, other) {
		t.Errorf("in one order %q, in the other %q", one, other)
	}
	for _, want := range []string{
		"/state/libcuda.so /usr/lib/libcuda.so.1", "/opt/libcuda.so.1 /usr/lib/libcuda.so.driver", "/opt/libnvidia-ptxjitcompiler.so.1 /usr/lib/libnvidia-ptxjitcompiler.so.1",
	} {
		if !slices.Contains(one, want) {
			t.Errorf("%s is not mounted: %q", want, one)
		}
	}
}

// A container with both names has each file of the driver once, whatever the driver is made of.
func TestNothingOfTheDriverIsLostBetweenTheTwoSpecifications(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	libraries := []string{"libcuda.so.1", "libcuda.so.580.95.05", "libnvidia-ml.so.1", "libnvidia-ml.so.580.95.05", "libcuda.so", "libcudadebugger.so.1", "nvidia-smi", "libnvidia-ml.so.1.bak"}
	for range 200 {
		common := &specs.ContainerEdits{}
		var want []string
		for _, i := range random.Perm(len(libraries))[:random.IntN(len(libraries)+1)] {
			path := fmt.Sprintf("/lib%d/%s", random.IntN(2), libraries[i])
			common.Mounts = append(common.Mounts, bindMount("/host"+path, path, true))
			want = append(want, "/host"+path+" "+path)
		}
		slices.Sort(want)
		got := mountsOf(t, written(t, common, modes.Injection{}, "a"), DriverName, Name("a"))
		got = slices.DeleteFunc(got, func(line string) bool { return strings.Contains(line, seals) })
		if !slices.Equal(got, want) {
			t.Fatalf("mounted are %q, want %q", got, want)
		}
	}
}

func TestTheSpecificationOfAContainerDoesNotGrowWithTheDriver(t *testing.T) {
	var small, large int
	for files, size := range map[int]*int{1: &small, 400: &large} {
		text, err := Spec("a", fullDriver(files), deviceEdits(), injections()["hami-core"])
		if err != nil {
			t.Fatal(err)
		}
		*size = len(text)
	}
	if small != large {
		t.Errorf("it has %d bytes with one file of the driver, and %d with 400", small, large)
	}
}

// The driver's specification belongs to no allocation, so nobody takes it for one that is left
// over.
func TestTheDriversSpecificationIsNoAllocation(t *testing.T) {
	dir := written(t, fullDriver(1), modes.Injection{}, "a")
	if ids, err := dir.IDs(); err != nil || !slices.Equal(ids, []string{"a"}) {
		t.Errorf("allocations are %q, %v", ids, err)
	}
	if id, ours := ID(DriverName); ours {
		t.Errorf("%s is allocation %s", DriverName, id)
	}
}

func TestTheDriversSpecificationIsThereAsLongAsAnyOther(t *testing.T) {
	dir := written(t, fullDriver(1), modes.Injection{}, "a", "b")
	for _, step := range []struct {
		remove string
		there  bool
	}{{"a", true}, {"none", true}, {"b", false}, {"b", false}} {
		if err := dir.Remove(step.remove); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir.Path, driverFile)); (err == nil) != step.there {
			t.Errorf("after %s was removed: %v", step.remove, err)
		}
	}
}

// Containers come and go at once: whenever one's specification is there, so is the driver's.
func TestContainersThatComeWhileTheLastOneGoesFindTheDriver(t *testing.T) {
	dir := &Directory{Files: host.OS{}, Path: t.TempDir()}
	driver, err := DriverSpec(fullDriver(1))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for c := range 4 {
		all.Go(func() {
			id := fmt.Sprint("id", c)
			text, err := Spec(id, fullDriver(1), nil, modes.Injection{})
			for range 100 {
				if err == nil {
					_, err = dir.Write(id, driver, text)
				}
				if _, gone := os.Stat(filepath.Join(dir.Path, driverFile)); gone != nil {
					t.Errorf("%s is there without the driver: %v", id, gone)
				}
				if err == nil {
					err = dir.Remove(id)
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if left, _ := os.ReadDir(dir.Path); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// What the container runtime does whenever a specification changes, with 250 containers of a driver
// of 35 files: as it is, and with the driver in the specification of each of them.
func BenchmarkRefresh(b *testing.B) {
	var ids []string
	for i := range 250 {
		ids = append(ids, fmt.Sprint("id", i))
	}
	for name, driver := range map[string]*specs.ContainerEdits{"once": fullDriver(35), "in each": driverEdits()} {
		in := injections()["hami-core"]
		if name == "in each" {
			for _, m := range fullDriver(35).Mounts {
				in.Mounts = append(in.Mounts, modes.Mount{Host: m.HostPath, Container: m.ContainerPath, ReadOnly: true})
			}
		}
		cache, err := cdi.NewCache(cdi.WithSpecDirs(written(b, driver, in, ids...).Path), cdi.WithAutoRefresh(false))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := cache.Refresh(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
