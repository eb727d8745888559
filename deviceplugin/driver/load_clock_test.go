// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"maps"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func TestSamplesFromBeforeAClockWasSetBackDoNotCount(t *testing.T) {
	const now = 100_000_000
	samples := []nvml.ProcessUtilizationSample{
		{Pid: 1, TimeStamp: now + 3_600_000_000, SmUtil: 90}, // an hour ahead: the clock was set back since
		{Pid: 1, TimeStamp: now - 500_000, SmUtil: 20},
		{Pid: 1, TimeStamp: now - 900_000, SmUtil: 70},
		{Pid: 2, TimeStamp: now - 2_000_000, SmUtil: 50}, // too old
		{Pid: 3, TimeStamp: now + 3_600_000_000, SmUtil: 80},
	}
	if got, want := latestLoads(samples, now-1_000_000, now), (map[int]float64{1: 0.2}); !maps.Equal(got, want) {
		t.Errorf("busy are %v, want %v", got, want)
	}
}
