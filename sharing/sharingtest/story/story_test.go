// SPDX-License-Identifier: Apache-2.0

package story

import (
	"strings"
	"testing"
)

// echo says what it is told, and nothing for "be quiet".
type echo struct{ heard []string }

func (e *echo) Do(commands []string) string {
	e.heard = append(e.heard, commands...)
	if commands[0] == "be quiet" {
		return ""
	}
	return strings.Join(commands, "\n") + "\n"
}

func TestAStoryIsReturnedWithTheOutcomesThatCame(t *testing.T) {
	e := &echo{}
	for told, want := range map[string]string{
		"# only a comment\n":              "# only a comment\n",
		"# a comment\n\na # b\n  c\n----": "# a comment\n\na # b\n  c\n----\na\nc\n",
		"a\n----\nsomething else\n":       "a\n----\na\n",
		"be quiet\n----\nok\n\nb\n----\n": "be quiet\n----\nok\n\nb\n----\nb\n",
	} {
		if got := Play(told, e); got != want {
			t.Errorf("%q becomes %q, want %q", told, got, want)
		}
	}
}

func TestTheFirstDifferenceIsShownInItsBlock(t *testing.T) {
	got := difference("a\n----\nx\n\nb\n----\ny\nz\n", "a\n----\nx\n\nb\n----\ny\nw\n")
	if want := "line 8\nwant z\ngot  w\nin the block\nb\n----\ny\nw"; got != want {
		t.Errorf("it shows %q, want %q", got, want)
	}
	if got := difference("a\n", "a\n\nb"); !strings.Contains(got, "3 lines, want 2") {
		t.Errorf("of a longer story it says %q", got)
	}
}
