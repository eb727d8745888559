// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// deviceEdits are those of a device.
func deviceEdits() *specs.ContainerEdits {
	return &specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{{Path: "/dev/nvidia0", HostPath: "/run/dev/nvidia0", Permissions: "rw"}}}
}

// driverEdits are those that any device needs.
func driverEdits() *specs.ContainerEdits {
	return &specs.ContainerEdits{
		Env:         []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility"},
		DeviceNodes: []*specs.DeviceNode{{Path: "/dev/nvidiactl", HostPath: "/run/dev/nvidiactl", Permissions: "rw"}},
		Mounts: []*specs.Mount{
			bindMount("/opt/libcuda.so.1", "/usr/lib/libcuda.so.1", true), bindMount("/opt/libnvidia-ptxjitcompiler.so.1", "/usr/lib/libnvidia-ptxjitcompiler.so.1", true),
		},
		Hooks: []*specs.Hook{{HookName: "createContainer", Path: "/usr/bin/nvidia-cdi-hook", Args: []string{"nvidia-cdi-hook", "update-ldcache"}}},
	}
}

func injections() map[string]modes.Injection {
	return map[string]modes.Injection{
		"hami-core": {
			Devices: []sharing.DeviceID{"GPU-a"},
			Env: []modes.Variable{
				{Name: "CUDA_DEVICE_MEMORY_LIMIT_0", Value: "3000m"}, {Name: "CUDA_DEVICE_MEMORY_SHARED_CACHE", Value: "/tmp/vgpu/vgpu.cache"},
			},
			Mounts: []modes.Mount{
				{Host: "/state/lib/libvgpu-1.so", Container: "/usr/local/vgpu/libvgpu.so", ReadOnly: true},
				{Host: "/state/containers/uid_main/vgpu", Container: "/tmp/vgpu"},
			},
			Hooks: []modes.Hook{{Path: "/state/hook/deviceshare-hook", Args: []string{"merge-preload", "--file=/state/containers/uid_main/ld.so.preload"}}},
		},
		"whole-device": {Devices: []sharing.DeviceID{"GPU-a"}},
		"partition":    {Devices: []sharing.DeviceID{"MIG-a"}, DeviceNodes: []string{"/dev/nvidia-caps/nvidia-cap12"}},
	}
}

func TestSpecificationsAreAsWrittenDown(t *testing.T) {
	for name, in := range injections() {
		t.Run(name, func(t *testing.T) {
			got, err := Spec("0123456789abcdef", driverEdits(), deviceEdits(), in)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || string(got) != string(want) {
				t.Errorf("%v: %s is not what is rendered:\n%s\nrun the test with -update if that is meant", err, golden, got)
			}
		})
	}
}

func TestTheRuntimeResolvesTheNameToExactlyThisContainer(t *testing.T) {
	dir := &Directory{Files: host.OS{}, Path: t.TempDir()}
	driver, err := DriverSpec(&specs.ContainerEdits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"one", "two"} {
		text, err := Spec(id, nil, nil, modes.Injection{Env: []modes.Variable{{Name: "WHO", Value: id}, {Name: "PATH_LIKE", Value: "a=b"}}})
		if err != nil {
			t.Fatal(err)
		}
		if changed, err := dir.Write(id, driver, text); err != nil || !changed {
			t.Fatal(changed, err)
		}
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir.Path), cdi.WithAutoRefresh(false))
	if err != nil || len(cache.GetErrors()) != 0 {
		t.Fatal(err, cache.GetErrors())
	}
	spec := &oci.Spec{Process: &oci.Process{Env: []string{"WHO=the pod says otherwise", "NVIDIA_VISIBLE_DEVICES=all"}}}
	if _, err := cache.InjectDevices(spec, Name("two")); err != nil {
		t.Fatal(err)
	}
	env := strings.Join(lastWins(spec.Process.Env), " ")
	for _, want := range []string{"WHO=two", "PATH_LIKE=a=b", "NVIDIA_VISIBLE_DEVICES=void"} {
		if !strings.Contains(env, want) {
			t.Errorf("the environment is %s, want %s in it", env, want)
		}
	}
	if strings.Contains(env, "otherwise") || strings.Contains(env, "=all") {
		t.Errorf("the pod's own variables won: %s", env)
	}
	if _, err := cache.InjectDevices(spec, Name("three")); err == nil {
		t.Error("a name without a specification was resolved")
	}
}

// lastWins is what runc does with variables that are there twice: the library
// appends and does not replace.
func lastWins(env []string) []string {
	values := map[string]string{}
	for _, line := range env {
		name, _, _ := strings.Cut(line, "=")
		values[name] = line
	}
	return slices.Sorted(maps.Values(values))
}

func TestWhatTheRuntimeWouldMisreadIsRefused(t *testing.T) {
	cases := map[string]struct {
		id   string
		base *specs.ContainerEdits
		in   modes.Injection
	}{
		"an id with a slash":                                {id: "a/b"},
		"an empty id":                                       {id: ""},
		"a variable with an equal sign":                     {id: "a", in: modes.Injection{Env: []modes.Variable{{Name: "A=B", Value: "c"}}}},
		"a variable without a name":                         {id: "a", in: modes.Injection{Env: []modes.Variable{{Value: "c"}}}},
		"a relative mount":                                  {id: "a", in: modes.Injection{Mounts: []modes.Mount{{Host: "x", Container: "/y"}}}},
		"a mount that climbs":                               {id: "a", in: modes.Injection{Mounts: []modes.Mount{{Host: "/x", Container: "/y/../etc"}}}},
		"a hook without a folder":                           {id: "a", in: modes.Injection{Hooks: []modes.Hook{{Path: "hook"}}}},
		"a hook with an argument that would be cut":         {id: "a", in: modes.Injection{Hooks: []modes.Hook{{Path: "/hook", Args: []string{"a\x00b"}}}}},
		"a mount over the root":                             {id: "a", in: modes.Injection{Mounts: []modes.Mount{{Host: "/x", Container: "/"}}}},
		"a device node without a path":                      {id: "a", in: modes.Injection{DeviceNodes: []string{""}}},
		"a variable with a character YAML has no place for": {id: "a", in: modes.Injection{Env: []modes.Variable{{Name: "A", Value: "\x7f"}}}},
		"a variable that is not UTF-8":                      {id: "a", in: modes.Injection{Env: []modes.Variable{{Name: "A", Value: "\xff"}}}},
		"a mount with a byte-order mark":                    {id: "a", in: modes.Injection{Mounts: []modes.Mount{{Host: "/a", Container: "/\ufeff"}}}},
		"a driver variable half set":                        {id: "a", base: &specs.ContainerEdits{Env: []string{"NOVALUE"}}},
		"a driver hook at no stage":                         {id: "a", base: &specs.ContainerEdits{Hooks: []*specs.Hook{{HookName: "never", Path: "/x"}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if text, err := Spec(tc.id, nil, tc.base, tc.in); err == nil {
				t.Errorf("it was rendered:\n%s", text)
			}
		})
	}
}

func TestRenderingChangesNoneOfItsArguments(t *testing.T) {
	common, base := driverEdits(), deviceEdits()
	if _, err := Spec("a", common, base, injections()["hami-core"]); err != nil {
		t.Fatal(err)
	}
	if _, err := DriverSpec(common); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(common, driverEdits()) || !reflect.DeepEqual(base, deviceEdits()) {
		t.Errorf("they are now %+v and %+v", common, base)
	}
}

func FuzzSpec(f *testing.F) {
	f.Add("0123456789abcdef", "CUDA_DEVICE_MEMORY_LIMIT_0", "3000m", "/state/x", "/tmp/vgpu", "/dev/nvidia-caps/nvidia-cap1")
	f.Add("a", "", "\x00", "x", "/..", "/")
	f.Add("0", "0", "\x7f", "/0", "/0", "/0") // found by the fuzzer: YAML refuses it
	f.Add("A.b:c-d_e", "A", "\n\"\\", "/a b", "/é", "/dev/x")
	f.Fuzz(func(t *testing.T, id, name, value, host, inside, node string) {
		text, err := Spec(id, driverEdits(), deviceEdits(), modes.Injection{
			Env:         []modes.Variable{{Name: name, Value: value}},
			Mounts:      []modes.Mount{{Host: host, Container: inside}},
			DeviceNodes: []string{node},
		})
		if err != nil {
			return
		}
		if got, ours := FileID(File(id)); !ours || got != id {
			t.Fatalf("the file of %q is not recognised", id)
		}
		path := filepath.Join(t.TempDir(), File(id))
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		spec, err := cdi.ReadSpec(path, 0)
		if err != nil {
			t.Fatalf("the library refuses what was rendered: %v\n%s", err, text)
		}
		if spec.GetDevice(id) == nil || spec.GetVendor() != vendor {
			t.Fatalf("the device %q is not in\n%s", id, text)
		}
		if got, ours := ID(Name(id)); !ours || got != id {
			t.Fatalf("the name of %q is not recognised", id)
		}
	})
}
