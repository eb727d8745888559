// SPDX-License-Identifier: Apache-2.0

// Package sharingtest is the support code of tests that need devices and pods:
// builders with the tables of real hardware, and the suite that every backend
// must pass. It is imported by tests only.
package sharingtest
