// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"strings"
	"testing"

	"deviceshare/sharing"
)

const (
	core   = sharing.HAMiCore
	mig    = sharing.MIG
	server = sharing.MPS
	slice  = sharing.TimeSlicing
)

func in(modes ...sharing.Mode) []sharing.Mode { return modes }

func held(mode sharing.Mode, pods ...string) []Holder {
	var out []Holder
	for _, p := range pods {
		out = append(out, Holder{Owner: sharing.Owner(p), Pod: p, Mode: mode})
	}
	return out
}

func TestWhatIsDoneWithADevice(t *testing.T) {
	cases := map[string]struct {
		wanted  sharing.Mode
		entered []sharing.Mode
		settled bool
		holders []Holder
		steps   string
		why     string // parts, with commas
	}{
		"a mode that is no state of the device needs nothing":       {wanted: core},
		"from one such mode to another neither":                     {wanted: slice},
		"a mode is entered":                                         {wanted: server, steps: "enter mps"},
		"it is entered again when another process began it":         {wanted: server, entered: in(server), steps: "enter mps"},
		"and not again when this one did it":                        {wanted: server, entered: in(server), settled: true},
		"unless something took the device out of it since":          {wanted: mig, settled: true, steps: "enter mig"},
		"another mode is left first":                                {wanted: mig, entered: in(server), steps: "leave mps, enter mig"},
		"and left for a mode that needs nothing":                    {wanted: slice, entered: in(mig), steps: "leave mig"},
		"what two modes left behind is cleared":                     {wanted: core, entered: in(mig, server), steps: "leave mig, leave mps"},
		"both are left before a third is entered":                   {wanted: server, entered: in(mig, server), steps: "leave mig, enter mps"},
		"a mode left over is left although this process is settled": {wanted: server, entered: in(mig, server), settled: true, steps: "leave mig"},
		"a holder in the mode wanted shows that it is entered":      {wanted: mig, holders: held(mig, "a/p")},
		"a holder in another mode keeps the device":                 {wanted: mig, holders: held(core, "a/p"), why: "mig,hami-core,a/p"},
		"whatever the device is in":                                 {wanted: slice, entered: in(mig, server), holders: held(mig, "a/p"), why: "time-slicing,mig,a/p"},
		"one of several in another mode is enough":                  {wanted: server, holders: append(held(server, "a/q"), held(core, "a/p")...), why: "hami-core,a/p"},
		"of many holders a few are named":                           {wanted: server, holders: held(core, "a/1", "a/2", "a/3", "a/4", "a/5"), why: "a/1, a/2, a/3 and others"},
		"a holder of unknown mode keeps a device out of a mode":     {wanted: server, holders: held("", "a/p"), why: "mps,a mode that is not recorded,a/p"},
		"and in what it was entered for":                            {wanted: core, entered: in(mig), holders: held("", "a/p"), why: "hami-core,not recorded,a/p"},
		"also where the mode looks right, since it is not ours":     {wanted: mig, entered: in(mig), holders: held("", "a/p"), why: "mig,not recorded,a/p"},
		"nor does it share by time":                                 {wanted: slice, holders: held("", "a/p"), why: "time-slicing,not recorded,a/p"},
		"a device that was in no other mode goes on beside it":      {wanted: core, holders: held("", "a/p")},
		"unless another holder is in another mode":                  {wanted: core, holders: append(held("", "a/p"), held(server, "a/q")...), why: "in mode mps are gone: a/q"},
		"a pod with two containers is one":                          {wanted: server, holders: held(core, "a/1", "a/1"), why: "a/1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := decideModeChange(situation{wanted: c.wanted, switched: in(mig, server), entered: c.entered, settled: c.settled, holders: c.holders})
			var steps []string
			for _, s := range d.actions {
				steps = append(steps, s.String())
			}
			if got := strings.Join(steps, ", "); got != c.steps {
				t.Errorf("the steps are %q, want %q", got, c.steps)
			}
			if (c.why == "") != (!d.wait) {
				t.Errorf("it waits because %q", d.why)
			}
			for _, part := range strings.Split(c.why, ",") {
				if !strings.Contains(d.why, strings.TrimSpace(part)) {
					t.Errorf("it waits because %q, which does not name %q", d.why, part)
				}
			}
			if d.isReady() != (c.steps == "" && c.why == "") {
				t.Errorf("ready is %v", d.isReady())
			}
		})
	}
}

// Whatever a device is in and whoever holds it: with holders there are no steps,
// and without them the steps end in the wanted mode and no other.
func TestStepsLeadToTheWantedModeAndNeverUnderAHolder(t *testing.T) {
	subsets := [][]sharing.Mode{nil, in(mig), in(server), in(mig, server)}
	for _, wanted := range sharing.Modes() {
		for _, entered := range subsets {
			for _, settled := range []bool{false, true} {
				for _, holder := range append(sharing.Modes(), "") {
					f := situation{wanted: wanted, switched: in(mig, server), entered: entered, settled: settled}
					if holder != "" {
						f.holders = held(holder, "a/p")
					}
					if says := wrong(f, decideModeChange(f)); says != "" {
						t.Errorf("%+v: %s", f, says)
					}
				}
			}
		}
	}
}

// wrong says what is wrong with a decision, by taking its steps.
func wrong(f situation, d decision) string {
	if len(f.holders) > 0 {
		if len(d.actions) > 0 {
			return fmt.Sprintf("the steps %v touch a device that is held", d.actions)
		}
		if d.isReady() != (f.holders[0].Mode == f.wanted) {
			return fmt.Sprintf("ready is %v", d.isReady())
		}
		return ""
	}
	now := map[sharing.Mode]bool{}
	for _, m := range f.entered {
		now[m] = true
	}
	for _, s := range d.actions {
		if !s.Leave && (now[mig] && s.Mode != mig || now[server] && s.Mode != server) {
			return fmt.Sprintf("%s while another mode is entered", s)
		}
		now[s.Mode] = !s.Leave
	}
	for _, m := range f.switched {
		if now[m] != (m == f.wanted) {
			return fmt.Sprintf("after %v it is in mode %s: %v", d.actions, m, now[m])
		}
	}
	return ""
}
