// SPDX-License-Identifier: Apache-2.0

package modestest_test

import (
	"errors"
	"path/filepath"
	"testing"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes/modestest"
)

func TestCrashingStopsAtTheNumberedEffect(t *testing.T) {
	for name, late := range map[string]bool{"before it happens": false, "after it happened": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c := &modestest.Crashing{Under: host.OS{}, At: 1, Late: late}
			first, second, third := filepath.Join(dir, "1"), filepath.Join(dir, "2"), filepath.Join(dir, "3")
			if err := c.Write(first, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := c.Write(second, nil, 0o600); !errors.Is(err, modestest.ErrCrash) {
				t.Fatalf("the numbered effect answers %v", err)
			}
			if err := c.Write(third, nil, 0o600); !errors.Is(err, modestest.ErrCrash) {
				t.Fatalf("an effect after the stop answers %v", err)
			}
			if _, err := c.Read(first); !errors.Is(err, modestest.ErrCrash) {
				t.Fatalf("a read after the stop answers %v", err)
			}
			names, _ := (host.OS{}).List(dir)
			want := 1
			if late {
				want = 2
			}
			if len(names) != want {
				t.Errorf("%v exist, want %d files", names, want)
			}
		})
	}
}
