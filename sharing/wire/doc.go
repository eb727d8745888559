// SPDX-License-Identifier: Apache-2.0

// Package wire is the one codec of every annotation the parts of deviceshare
// exchange, and the one place that knows their keys. docs/wire.md describes the
// formats for people.
//
// There are two texts for the same value. The JSON texts carry a version and
// are complete. The legacy texts, in legacy_register.go and legacy_assigned.go, are what the
// existing volcano-vgpu-device-plugin and the scheduler plugin in Volcano read
// and write; they are kept so that a fleet can be moved node by node.
//
// Decoding is total: it returns a whole value, or an *Error that says where the
// text is wrong. It never panics and never returns half of a value. Fields that
// are not known are skipped, so that a newer writer does not disable an older
// reader; a known field with a wrong type or a value out of range refuses the
// whole text. Encoding is deterministic, and an encoder never writes a text that
// its decoder refuses.
//
// Everything here is a pure function of its arguments and safe for concurrent
// use.
package wire
