// SPDX-License-Identifier: Apache-2.0

package oversight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/node"
)

// set is how a node's runtimes are set, and what was sent about that.
type set struct {
	containerRuntime
	loop
	why  string
	err  error
	sent []string
}

func (s *set) GivesUnasked(context.Context) (string, bool, error) { return s.why, s.why != "", s.err }

func (s *set) Send(e node.Event) { s.sent = append(s.sent, fmt.Sprintf("%T%v", e, e)) }

func TestANodeWhereContainersGetDevicesUnaskedIsInTroubleUntilItIsMended(t *testing.T) {
	s := &set{}
	b := &bypassWatch{&Config{Runtime: s, Agent: s}}
	for _, c := range []struct {
		why  string
		err  error
		want []string
	}{
		{"", cdi.ErrRuntimeSilent, nil},
		{"it gives all", nil, []string{"node.Troubled{nvidia-runtime it gives all}"}},
		{"", errors.New("starting"), nil},
		{"", cdi.ErrRuntimeSilent, nil},
		{"", nil, []string{"node.Recovered{nvidia-runtime}"}},
	} {
		s.why, s.err, s.sent = c.why, c.err, nil
		if b.checkRuntime(context.Background()); !slices.Equal(s.sent, c.want) {
			t.Errorf("%q, %v: sent %q, want %q", c.why, c.err, s.sent, c.want)
		}
	}
}
