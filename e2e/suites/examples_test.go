// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"testing"
)

// Every example of manifests/examples is applied as a user would and does what
// its README says.
func testExamples(t *testing.T, w *world) {
	t.Skip("written with the examples")
}
