// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// Absence is the directory of a Proxy in which a device plugin that runs and has nothing to
// register notes why. Containers that start meanwhile are told so. "" is no directory: nothing is
// noted.
type Absence string

func (d Absence) notePath() string { return filepath.Join(string(d), "absent") }

// longestNote is the size of a note in bytes.
const longestNote = 600

// NoteAbsence leaves a note; an empty one removes what was noted.
func (d Absence) NoteAbsence(why string) error {
	switch {
	case d == "":
		return nil
	case why == "":
		if err := os.Remove(d.notePath()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the note for the keeper: %w", err)
		}
		return nil
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return fmt.Errorf("make the keeper's directory: %w", err)
	}
	// A rename, so that the keeper never reads half a note.
	if err := os.WriteFile(d.notePath()+".new", []byte(why), 0o600); err != nil {
		return fmt.Errorf("note for the keeper why the device plugin does not register: %w", err)
	}
	if err := os.Rename(d.notePath()+".new", d.notePath()); err != nil {
		return fmt.Errorf("note for the keeper why the device plugin does not register: %w", err)
	}
	return nil
}

// readNote is the note as one line; "" where there is none.
func (d Absence) readNote() string {
	f, err := os.Open(d.notePath())
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, longestNote))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(text), "")))
}
