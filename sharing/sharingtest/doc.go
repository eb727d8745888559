// SPDX-License-Identifier: Apache-2.0

// Package sharingtest supports tests that need devices and pods. It has builders with the
// tables of real hardware, and the suite that every backend must pass. Only tests import it.
package sharingtest
