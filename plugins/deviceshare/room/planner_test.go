// SPDX-License-Identifier: Apache-2.0

package room

import (
	"strings"
	"testing"

	"deviceshare/sharing/plan"
)

func TestAFaultOfThePlannerIsAnError(t *testing.T) {
	_, no, err := findPlan(&plan.World{Nodes: []*plan.Node{nil}}, []*plan.Wish{{}})
	if err == nil || no != nil || !strings.Contains(err.Error(), "plan for 1 pods on 1 nodes") {
		t.Errorf("no %v, error %v", no, err)
	}
}
