// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"testing"
	"time"
)

func TestASocketIsOfTheKubeletThatRunsNow(t *testing.T) {
	for name, c := range map[string]struct {
		made string
		died time.Time
		want bool
	}{
		"nothing was killed yet":       {"1795773000.250\n", time.Time{}, true},
		"made before the death":        {"1795773000.250\n", time.UnixMilli(1795773000_251), false},
		"made by the one that died":    {"1795773000.250\n", time.UnixMilli(1795773000_250), false},
		"made after the death":         {"1795773000.250\n", time.UnixMilli(1795773000_249), true},
		"no socket, and another error": {"", time.Time{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isAfter(c.made, c.died); got != c.want {
				t.Errorf("isAfter(%q, %v) = %v", c.made, c.died, got)
			}
		})
	}
}
