// SPDX-License-Identifier: Apache-2.0

// Package preload decides what /etc/ld.so.preload says in a container that is held to a share: our
// library first, then what the container's image preloads by itself. It is pure.
package preload

import (
	"bytes"
	"strings"
)

// Merge returns a file with our library's line first, and then a line for each library that the
// image's file names, in its order. What the image's file holds beside names is not passed on, so
// that nothing in it can change the meaning of the first line. A library stands in the result once.
func Merge(ours string, image []byte) []byte {
	merged, have := []byte(ours+"\n"), map[string]bool{ours: true}
	for _, name := range Names(image) {
		if !have[name] {
			have[name] = true
			merged = append(append(merged, name...), '\n')
		}
	}
	return merged
}

// Names lists the libraries that a file names, as glibc's loader reads it: a comment begins with #,
// wherever that is, and ends with its line; names are divided by spaces, tabs, colons and ends of
// lines. A NUL byte outside of comments ends the file.
func Names(file []byte) []string {
	var text strings.Builder
	for line := range bytes.Lines(file) {
		before, _, _ := bytes.Cut(line, []byte("#"))
		text.Write(before)
		text.WriteByte('\n')
	}
	read, _, _ := strings.Cut(text.String(), "\x00")
	return strings.FieldsFunc(read, func(r rune) bool { return strings.ContainsRune(": \t\n", r) })
}
