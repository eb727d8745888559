// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes/modestest"
)

func TestAFileIsWrittenOnlyIfItSaysSomethingElse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	path := filepath.Join(dir, "f")
	files := &modestest.Crashing{Under: host.OS{}, At: -1}
	for i, tc := range []struct {
		content string
		changed bool
		effects int // in all, so far
	}{
		{"a", true, 3}, // a write that fails, the directory, the write
		{"a", false, 3},
		{"b", true, 4},
	} {
		changed, err := host.WriteIfChanged(files, path, []byte(tc.content), 0o600, 0o750)
		if err != nil || changed != tc.changed || files.Effects() != tc.effects {
			t.Errorf("call %d: changed %v, %v, after %d effects", i, changed, err, files.Effects())
		}
		if have, err := os.ReadFile(path); err != nil || string(have) != tc.content {
			t.Errorf("call %d: it says %q, %v", i, have, err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("the directory is %v, %v", info.Mode(), err)
	}
	if changed, err := host.WriteIfChanged(files, dir, nil, 0o600, 0o750); err == nil || changed {
		t.Error("a directory was taken for a file")
	}
}
