// SPDX-License-Identifier: Apache-2.0

package agent

import "testing"

func TestTheNodeKnowsHowMuchMemoryItHas(t *testing.T) {
	if memory, err := nodeMemory(); err != nil || memory <= 0 {
		t.Errorf("it has %d bytes (%v)", memory, err)
	}
}
