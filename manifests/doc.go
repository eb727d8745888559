// SPDX-License-Identifier: Apache-2.0

// Package manifests holds what is applied to a cluster: the Helm chart, the same as one plain
// file, and examples. Its only code is tests. They check that the plain file is the rendered
// chart, that everything decodes strictly, and that the examples ask for what the rules allow.
package manifests
