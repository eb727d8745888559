// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strconv"
)

// MaxText is the longest text a decoder looks at, in bytes: what the API server
// accepts as the annotations of one object together.
const MaxText = 256 << 10

// Error says which text is wrong, where, and why.
type Error struct {
	// Text names the format: "node inventory", "pod placement", or the key of
	// one of the legacy annotations.
	Text string
	// At is a path such as devices[0].memory, or a position such as byte 17.
	At string
	// Why is the mistake, in lower case.
	Why string
}

// Error prints text, place and reason.
func (e *Error) Error() string {
	if e.At == "" {
		return e.Text + ": " + e.Why
	}
	return e.Text + ": " + e.At + ": " + e.Why
}

func bytePosition(offset int) string { return "byte " + strconv.Itoa(offset) }

func quoteExcerpt(s string) string {
	const longest = 60
	if len(s) > longest {
		return strconv.Quote(s[:longest]) + "..."
	}
	return strconv.Quote(s)
}

// firstError keeps the first mistake of one text.
type firstError struct {
	text string
	err  *Error
}

func (f *firstError) failf(path, format string, args ...any) {
	if f.err == nil {
		f.err = &Error{Text: f.text, At: path, Why: fmt.Sprintf(format, args...)}
	}
}

// asError is the first mistake as an error, nil if there was none.
func (f *firstError) asError() error {
	if f.err == nil {
		return nil
	}
	return f.err
}

// requireNumber reads a field that must be present and in range.
func requireNumber[T int | int64](f *firstError, path string, v *T, low, high T) T {
	switch {
	case v == nil:
		f.failf(path, "is missing")
		return 0
	case *v < low || *v > high:
		f.failf(path, "%d is outside %d to %d", *v, low, high)
		return 0
	}
	return *v
}
