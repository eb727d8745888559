// SPDX-License-Identifier: Apache-2.0

package request_test

import (
	"strings"
	"testing"

	"deviceshare/sharing/podspec"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

func TestAPodSaysWhetherItMayMoveAndWhatThatCosts(t *testing.T) {
	for name, c := range map[string]struct {
		mayMove, cost string
		namespace     string // its label
		want          request.Movability
		mistakes      []string
	}{
		"nothing is said":                        {},
		"it may":                                 {mayMove: "true", cost: "10m", want: request.Movability{MayMove: true, RestartCost: 600}},
		"it may not":                             {mayMove: "false", cost: "2h", want: request.Movability{RestartCost: 7200}},
		"its namespace says it":                  {namespace: "true", want: request.Movability{MayMove: true}},
		"its namespace says it, and it does not": {mayMove: "false", namespace: "true"},
		"its namespace says it may not, it does": {mayMove: "true", namespace: "false", want: request.Movability{MayMove: true}},
		"neither yes nor no":                     {mayMove: "yes", mistakes: []string{`metadata.annotations[volcano.sh/vgpu-may-move]: unknown value "yes": want true or false`}},
		"a number without unit":                  {mayMove: "true", cost: "10", want: request.Movability{MayMove: true}, mistakes: []string{`metadata.annotations[volcano.sh/vgpu-restart-cost]: "10" is no time`}},
		"a cost below zero":                      {cost: "-10m", mistakes: []string{`metadata.annotations[volcano.sh/vgpu-restart-cost]: "-10m" is no time`}},
		"the most":                               {cost: "10000d", want: request.Movability{RestartCost: 864_000_000}},
		"too much":                               {cost: "9223372036854775807d", mistakes: []string{`metadata.annotations[volcano.sh/vgpu-restart-cost]: "9223372036854775807d" is no time`}},
		"two mistakes": {mayMove: "True", cost: "much", mistakes: []string{
			`metadata.annotations[volcano.sh/vgpu-may-move]: unknown value "True"`, `metadata.annotations[volcano.sh/vgpu-restart-cost]: "much" is no time`}},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{}
			if c.mayMove != "" {
				annotations[wire.UserMayMove] = c.mayMove
			}
			if c.cost != "" {
				annotations[wire.UserRestartCost] = c.cost
			}
			if got := request.MovabilityOf(annotations, map[string]string{wire.UserMayMove: c.namespace}); got != c.want {
				t.Errorf("read as %+v, want %+v", got, c.want)
			}
			_, mistakes := request.Rules{}.Read(&podspec.Pod{Annotations: annotations})
			if len(mistakes) != len(c.mistakes) {
				t.Fatalf("mistakes %v, want %q", mistakes, c.mistakes)
			}
			for i, m := range mistakes {
				if !strings.HasPrefix(m.String(), c.mistakes[i]) {
					t.Errorf("mistake %q, want %q", m, c.mistakes[i])
				}
			}
		})
	}
}
