// SPDX-License-Identifier: Apache-2.0

// Package config reads the two ConfigMaps that administrators write. Scheduler,
// webhook and device plugin read the same objects by the same rules.
//
// Reading is strict: an unknown field, a field given twice, a value of the wrong
// type or out of range each is a problem with its path, and all of them are
// reported at once. With any problem the text counts for nothing; what was in
// force stays in force. docs/wire.md lists the fields.
//
// Loaded values are not changed by anybody and may be read concurrently.
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
