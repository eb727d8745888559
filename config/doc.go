// SPDX-License-Identifier: Apache-2.0

// Package config reads the two ConfigMaps that administrators write. Scheduler, webhook and
// device plugin read the same objects by the same rules.
//
// Reading is strict. An unknown field, a field given twice, a value of the wrong type or out
// of range are problems. Each has its path, and all of them are reported at once. A text with
// any problem is not used at all: the settings that were in force stay in force. docs/wire.md
// lists the fields; docs/adr/0015 says why they are read by hand.
//
// Loaded values are never changed and may be read concurrently.
package config

// Problem is one mistake in a text.
type Problem struct {
	// Path is where, such as nvidia.knownMigGeometries[0].models, or a line.
	Path string
	// Message says what is wrong and what is wanted.
	Message string
}

// String joins path and message.
func (p Problem) String() string {
	if p.Path == "" {
		return p.Message
	}
	return p.Path + ": " + p.Message
}
