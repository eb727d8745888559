// SPDX-License-Identifier: Apache-2.0

// Package report parses the output of the CUDA client of e2e/fakegpu. Each line consists of
// words, and some of the words are key=value.
package report

import "strings"

// Value is the value of key in a line, "" if the line has none.
func Value(line, key string) string {
	for _, word := range strings.Fields(line) {
		if v, ok := strings.CutPrefix(word, key+"="); ok {
			return v
		}
	}
	return ""
}

// Field is the value of key in the first line that begins with start and has it.
func Field(text, start, key string) string {
	for _, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(line, start) {
			continue
		}
		if v := Value(line, key); v != "" {
			return v
		}
	}
	return ""
}
