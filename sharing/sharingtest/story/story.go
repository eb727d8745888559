// SPDX-License-Identifier: Apache-2.0

// Package story runs tests that are told as text. A story is a file of blocks with
// an empty line between them: commands, a line that begins with four dashes, and
// what comes of the commands. A block without dashes is a comment, and so is what
// follows a # in a command.
//
//	config GPU-0=mps
//	scan GPU-0=A100@1
//	----
//	GPU-0 is Unchecked: it has not been brought into mode mps yet
//
// It is imported by tests only.
package story

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// World is what the commands of one story act on.
type World interface {
	// Do carries out the commands of a block, which are neither empty nor have comments,
	// and returns what comes of them; "" is told as "ok".
	Do(commands []string) string
}

// Run plays the stories in testdata/*.txt, each in a new world, and fails a test in
// which something else comes of the commands than the file says. There must be as
// many as least. With rewrite the outcomes are written into the files instead; read
// the difference before committing it.
func Run(t *testing.T, least int, rewrite bool, newWorld func(t *testing.T) World) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < least {
		t.Fatalf("%d stories in testdata, want at least %d: %v", len(files), least, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			told := string(data)
			got := Play(told, newWorld(t))
			if rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != told {
				t.Errorf("%s differs; run this test with -rewrite and read the difference:\n%s", file, difference(told, got))
			}
		})
	}
}

// Play carries out the blocks of a story and returns it with the outcomes that came.
func Play(told string, w World) string {
	var out []string
	for block := range strings.SplitSeq(strings.TrimRight(told, "\n"), "\n\n") {
		commands, _, runs := strings.Cut(block, "\n----")
		if !runs {
			out = append(out, block) // a comment
			continue
		}
		outcome := strings.TrimRight(w.Do(lines(commands)), "\n")
		if outcome == "" {
			outcome = "ok"
		}
		out = append(out, commands+"\n----\n"+outcome)
	}
	return strings.Join(out, "\n\n") + "\n"
}

// lines returns the commands without comments and empty lines.
func lines(commands string) []string {
	var kept []string
	for line := range strings.SplitSeq(commands, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			kept = append(kept, line)
		}
	}
	return kept
}

// difference shows the first line that differs, with the block it is in.
func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s\nin the block\n%s", i+1, a[i], b[i], blockAt(b, i))
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(b), len(a))
}

// blockAt returns the lines around i up to the next empty ones.
func blockAt(lines []string, i int) string {
	from, to := i, i
	for from > 0 && lines[from-1] != "" {
		from--
	}
	for to < len(lines) && lines[to] != "" {
		to++
	}
	return strings.Join(lines[from:to], "\n")
}
