// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func TestEveryProcessIsListedOnceWithItsMemory(t *testing.T) {
	cases := map[string]struct {
		all     []nvml.ProcessInfo
		want    string
		unknown bool
	}{
		"nobody":                         {nil, "[]", false},
		"a process in two lists":         {[]nvml.ProcessInfo{{Pid: 9, UsedGpuMemory: 5}, {Pid: 3, UsedGpuMemory: 1}, {Pid: 9, UsedGpuMemory: 5}}, "[{3 1B} {9 5B}]", false},
		"one that is just leaving":       {[]nvml.ProcessInfo{{Pid: 9}, {Pid: 3, UsedGpuMemory: 1}}, "[{3 1B} {9 0}]", false},
		"a driver that gives 0 for all":  {[]nvml.ProcessInfo{{Pid: 9}, {Pid: 3}}, "[]", true},
		"a driver that says it does not": {[]nvml.ProcessInfo{{Pid: 9, UsedGpuMemory: 5}, {Pid: 3, UsedGpuMemory: unknownMemory}}, "[]", true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := mergeProcesses(c.all)
			if fmt.Sprint(got) != c.want || errors.Is(err, ErrUnsupported) != c.unknown {
				t.Errorf("it is %v, %v", got, err)
			}
		})
	}
}

func TestAMonitoringServiceThatTheDriverDoesNotListIsNamed(t *testing.T) {
	proc := t.TempDir()
	service := func(pid, name string, open ...string) {
		dir := filepath.Join(proc, pid, "fd")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "comm"), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for n, path := range open {
			if err := os.Symlink(path, filepath.Join(dir, strconv.Itoa(n))); err != nil {
				t.Fatal(err)
			}
		}
	}
	service("7", "nv-hostengine", "/dev/null", "/dev/nvidiactl", "/dev/nvidia1")
	service("8", "elsewhere", "/dev/nvidia10", "/dev/nvidiactl")
	service(strconv.Itoa(os.Getpid()), "ourselves", "/dev/nvidia1")
	found := otherClients(append([]Client{{PID: 9, Name: "python", GI: 3}}, clientsWithOpenFile(proc, "/dev/nvidia1")...))
	if want := []Client{{PID: 7, Name: "nv-hostengine", GI: WholeDevice}, {PID: 9, Name: "python", GI: 3}}; !slices.Equal(found, want) {
		t.Errorf("found %+v, want %+v", found, want)
	}
	if got := found[0].String(); got != "nv-hostengine (process 7)" {
		t.Errorf("it is called %s", got)
	}
	twice := otherClients([]Client{{PID: 9, Name: "python", GI: 3}, {PID: 9, Name: "python3", GI: WholeDevice}})
	if len(twice) != 1 || twice[0].GI != 3 {
		t.Errorf("a process that is listed and has it open is %+v", twice)
	}
}
