// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"strings"

	"deviceshare/e2e/workload"
)

// kubectl asks who has what, and why a pod waits, while the pods of the scenes before run.
func (s *story) kubectl(ctx context.Context) error {
	// More than any device has.
	if err := s.user.Create(ctx, pod("boundless").App("main", workload.Ask{Number: 1, Memory: 100000}, "forever").Build()); err != nil {
		return err
	}
	if _, err := s.user.WaitEvent(ctx, "boundless", "0/3 devices fit"); err != nil {
		return err
	}
	for _, q := range []struct{ line, claim string }{
		{"status", "demo/boundless waits, the scheduler says: "},
		{"devices", "demo/choosy:main"},
		{"why boundless -n demo", "0/3 devices fit"},
		{"top", "demo/choosy:main"},
	} {
		answer, err := s.cluster.Deviceshare(ctx, strings.Fields(q.line)...)
		if err != nil {
			return err
		}
		s.say("\n   $ kubectl deviceshare %s", q.line)
		s.quote(answer)
		if !strings.Contains(answer, q.claim) {
			return fmt.Errorf("kubectl deviceshare %s does not say %q", q.line, q.claim)
		}
	}
	return s.user.Delete(ctx, "boundless")
}
