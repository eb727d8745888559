// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"deviceshare/config/live"
	"deviceshare/deviceplugin/host"
)

func TestWhatIsKeptOfAConfigMapIsReadBackOrReported(t *testing.T) {
	var told []string
	k := Configuration{Files: host.OS{}, Directory: filepath.Join(t.TempDir(), "config"), Trouble: func(err error) { told = append(told, err.Error()) }}
	if last, ok := k.Recall("a"); ok {
		t.Errorf("before anything was kept: %+v", last)
	}
	some := live.Kept{Source: live.Source{Namespace: "ns", Name: "a", Version: "3"}, Text: "text\n"}
	for _, want := range []live.Kept{some, {}, some} {
		k.Keep("a", want)
		if got, ok := k.Recall("a"); !ok || got != want {
			t.Errorf("got %+v, %v; want %+v", got, ok, want)
		}
	}
	if len(told) > 0 {
		t.Errorf("told %q", told)
	}
	for name, text := range map[string]string{"cut off": `{"format":1,"text":"te`, "of another format": `{"format":2}`, "empty": ""} {
		told = nil
		if err := os.WriteFile(k.pathOf("a"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if last, ok := k.Recall("a"); ok || len(told) != 1 {
			t.Errorf("a file that is %s gives %+v, told %q", name, last, told)
		}
	}
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	told, k.Directory = nil, blocked
	if k.Keep("a", some); len(told) != 1 {
		t.Errorf("of a directory that cannot be written it tells %q", told)
	}
}
