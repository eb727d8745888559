// SPDX-License-Identifier: Apache-2.0

// Package manifests holds what is applied to a cluster: the Helm chart, the same
// as one plain file, and examples. There is no code but the tests that keep them
// true: the plain file is the rendered chart, everything decodes strictly, and
// the examples ask for what the rules allow.
package manifests
