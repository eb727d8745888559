// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDirectoryWithForeignFilesIsNeverEmptied(t *testing.T) {
	l := layout{repo: "/repo", state: t.TempDir()}
	precious := l.in("thesis.txt")
	if err := os.WriteFile(precious, []byte("years of work"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := claim(l); err == nil || !strings.Contains(err.Error(), l.state) {
		t.Errorf("claim said %v, want a refusal that names the directory", err)
	}
	if err := wipe(l); err != nil || !exists(precious) {
		t.Errorf("wipe said %v, file still there: %v", err, exists(precious))
	}
}

func TestClaimedDirectoryIsEmptiedButForTheLogs(t *testing.T) {
	l := layout{repo: "/repo", state: filepath.Join(t.TempDir(), "state")}
	if err := claim(l); err != nil {
		t.Fatal(err)
	}
	if err := l.makeDirs(); err != nil {
		t.Fatal(err)
	}
	if err := wipe(l); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(l.state)
	if err != nil || len(entries) != 2 || entries[0].Name() != markerFile || entries[1].Name() != "logs" {
		t.Errorf("left: %v, %v", entries, err)
	}
	if err := claim(l); err != nil {
		t.Errorf("claim again: %v", err)
	}
}

func TestSecondOwnerIsRefusedWithTheFirstOnesProcess(t *testing.T) {
	l := layout{state: filepath.Join(t.TempDir(), "state")}
	first, err := takeLock(l)
	if err != nil {
		t.Fatal(err)
	}
	_, err = takeLock(l)
	if err == nil || !strings.Contains(err.Error(), "make sandbox-down") || !strings.Contains(err.Error(), holder(l)) {
		t.Errorf("second lock: %v", err)
	}
	first.release()
	again, err := takeLock(l)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	again.release()
}
