// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestANoteForTheKeeperComesBackAndGoes(t *testing.T) {
	d := Absence(filepath.Join(t.TempDir(), "keeper"))
	for _, why := range []string{"", "no driver", "another reason", ""} {
		if err := d.NoteAbsence(why); err != nil {
			t.Fatal(err)
		}
		if got := d.readNote(); got != why {
			t.Errorf("noted %q, read %q", why, got)
		}
	}
	if err := Absence("").NoteAbsence("no keeper"); err != nil {
		t.Errorf("without a keeper: %v", err)
	}
	if err := os.WriteFile(string(d)+"2", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Absence(string(d) + "2").NoteAbsence("why"); err == nil {
		t.Error("a note that cannot be written is no error")
	}
}

func FuzzAbsence(f *testing.F) {
	f.Add([]byte("no driver"))
	f.Add([]byte("two\nlines\x00"))
	f.Add([]byte(strings.Repeat("\xff", longestNote+1)))
	f.Fuzz(func(t *testing.T, text []byte) {
		d := Absence(t.TempDir())
		if err := os.WriteFile(d.notePath(), text, 0o600); err != nil {
			t.Fatal(err)
		}
		got := d.readNote()
		if len(got) > longestNote || !utf8.ValidString(got) || strings.IndexFunc(got, unicode.IsControl) >= 0 {
			t.Errorf("%q reads as %q", text, got)
		}
	})
}
