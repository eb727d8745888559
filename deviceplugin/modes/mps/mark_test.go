// SPDX-License-Identifier: Apache-2.0

package mps

import "testing"

func TestAMarkIsReadAsItWasWritten(t *testing.T) {
	for _, want := range []mark{
		{},
		{pid: 7, memoryMiB: 81920, percentage: 80},
		{pid: 7, options: options{multiUser: true}, memoryMiB: 1, percentage: 1},
		{pid: 7, options: options{partitioned: true, bounded: true}, memoryMiB: 1, percentage: 100},
	} {
		if got := readMark(want.String()); got != want {
			t.Errorf("%+v is read as %+v", want, got)
		}
	}
	for _, text := range []string{"", "pid", "pid -1", "pid x", "pid 99999999999999999999", "memory\npercentage -3\nother 5"} {
		if got := readMark(text); got != (mark{}) {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
