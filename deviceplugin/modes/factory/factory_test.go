// SPDX-License-Identifier: Apache-2.0

package factory

import (
	"testing"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes/mps"
	"deviceshare/sharing"
)

func TestEveryModeHasAtMostOnePreparer(t *testing.T) {
	seen := map[sharing.Mode]bool{}
	for _, p := range New(Config{Files: host.OS{}, StateDir: "/state", LibraryDir: "/lib", MPS: mps.Config{Control: mps.Program{}}}) {
		if _, err := sharing.ParseMode(string(p.Mode())); err != nil {
			t.Errorf("a preparer serves an unknown mode: %v", err)
		}
		if seen[p.Mode()] {
			t.Errorf("mode %s has two preparers", p.Mode())
		}
		seen[p.Mode()] = true
	}
	for _, m := range []sharing.Mode{sharing.HAMiCore, sharing.TimeSlicing, sharing.MPS} {
		if !seen[m] {
			t.Errorf("mode %s has no preparer", m)
		}
	}
}
