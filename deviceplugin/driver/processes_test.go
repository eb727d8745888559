// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
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
			got, err := merge(c.all)
			if fmt.Sprint(got) != c.want || errors.Is(err, ErrUnsupported) != c.unknown {
				t.Errorf("it is %v, %v", got, err)
			}
		})
	}
}
