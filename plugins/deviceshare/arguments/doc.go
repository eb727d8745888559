// SPDX-License-Identifier: Apache-2.0

// Package arguments reads what the scheduler's configuration says to the plugin: its arguments, and
// the tiers in which it stands. It decides only, and logs nothing.
package arguments
