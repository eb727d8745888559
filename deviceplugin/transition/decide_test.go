// SPDX-License-Identifier: Apache-2.0

package transition

import (
	"fmt"
	"strings"
	"testing"

	"deviceshare/sharing"
)

const (
	core  = sharing.HAMiCore
	mig   = sharing.MIG
	mps   = sharing.MPS
	slice = sharing.TimeSlicing
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
		"a mode is entered":                                         {wanted: mps, steps: "enter mps"},
		"it is entered again when another process began it":         {wanted: mps, entered: in(mps), steps: "enter mps"},
		"and not again when this one did it":                        {wanted: mps, entered: in(mps), settled: true},
		"unless something took the device out of it since":          {wanted: mig, settled: true, steps: "enter mig"},
		"another mode is left first":                                {wanted: mig, entered: in(mps), steps: "leave mps, enter mig"},
		"and left for a mode that needs nothing":                    {wanted: slice, entered: in(mig), steps: "leave mig"},
		"what two modes left behind is cleared":                     {wanted: core, entered: in(mig, mps), steps: "leave mig, leave mps"},
		"both are left before a third is entered":                   {wanted: mps, entered: in(mig, mps), steps: "leave mig, enter mps"},
		"a mode left over is left although this process is settled": {wanted: mps, entered: in(mig, mps), settled: true, steps: "leave mig"},
		"a holder in the mode wanted shows that it is entered":      {wanted: mig, holders: held(mig, "a/p")},
		"a holder in another mode keeps the device":                 {wanted: mig, holders: held(core, "a/p"), why: "mig,hami-core,a/p"},
		"whatever the device is in":                                 {wanted: slice, entered: in(mig, mps), holders: held(mig, "a/p"), why: "time-slicing,mig,a/p"},
		"one of several in another mode is enough":                  {wanted: mps, holders: append(held(mps, "a/q"), held(core, "a/p")...), why: "hami-core,a/p"},
		"of many holders a few are named":                           {wanted: mps, holders: held(core, "a/1", "a/2", "a/3", "a/4", "a/5"), why: "a/1, a/2, a/3 and others"},
		"a holder of unknown mode keeps a device out of a mode":     {wanted: mps, holders: held("", "a/p"), why: "mps,a mode that is not recorded,a/p"},
		"and in what it was entered for":                            {wanted: core, entered: in(mig), holders: held("", "a/p"), why: "hami-core,not recorded,a/p"},
		"also where the mode looks right, since it is not ours":     {wanted: mig, entered: in(mig), holders: held("", "a/p"), why: "mig,not recorded,a/p"},
		"nor does it share by time":                                 {wanted: slice, holders: held("", "a/p"), why: "time-slicing,not recorded,a/p"},
		"a device that was in no other mode goes on beside it":      {wanted: core, holders: held("", "a/p")},
		"unless another holder is in another mode":                  {wanted: core, holders: append(held("", "a/p"), held(mps, "a/q")...), why: "in mode mps are gone: a/q"},
		"a pod with two containers is one":                          {wanted: mps, holders: held(core, "a/1", "a/1"), why: "a/1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := Decide(Facts{Wanted: c.wanted, Switched: in(mig, mps), Entered: c.entered, Settled: c.settled, Holders: c.holders})
			var steps []string
			for _, s := range d.Steps {
				steps = append(steps, s.String())
			}
			if got := strings.Join(steps, ", "); got != c.steps {
				t.Errorf("the steps are %q, want %q", got, c.steps)
			}
			if (c.why == "") != (d.Why == "") {
				t.Errorf("it waits because %q", d.Why)
			}
			for _, part := range strings.Split(c.why, ",") {
				if !strings.Contains(d.Why, strings.TrimSpace(part)) {
					t.Errorf("it waits because %q, which does not name %q", d.Why, part)
				}
			}
			if d.Ready() != (c.steps == "" && c.why == "") {
				t.Errorf("ready is %v", d.Ready())
			}
		})
	}
}

// Whatever a device is in and whoever holds it: with holders there are no steps,
// and without them the steps end in the wanted mode and no other.
func TestStepsLeadToTheWantedModeAndNeverUnderAHolder(t *testing.T) {
	subsets := [][]sharing.Mode{nil, in(mig), in(mps), in(mig, mps)}
	for _, wanted := range sharing.Modes() {
		for _, entered := range subsets {
			for _, settled := range []bool{false, true} {
				for _, holder := range append(sharing.Modes(), "") {
					f := Facts{Wanted: wanted, Switched: in(mig, mps), Entered: entered, Settled: settled}
					if holder != "" {
						f.Holders = held(holder, "a/p")
					}
					if says := wrong(f, Decide(f)); says != "" {
						t.Errorf("%+v: %s", f, says)
					}
				}
			}
		}
	}
}

// wrong says what is wrong with a decision, by taking its steps.
func wrong(f Facts, d Decision) string {
	if len(f.Holders) > 0 {
		if len(d.Steps) > 0 {
			return fmt.Sprintf("the steps %v touch a device that is held", d.Steps)
		}
		if d.Ready() != (f.Holders[0].Mode == f.Wanted) {
			return fmt.Sprintf("ready is %v", d.Ready())
		}
		return ""
	}
	now := map[sharing.Mode]bool{}
	for _, m := range f.Entered {
		now[m] = true
	}
	for _, s := range d.Steps {
		if !s.Leave && (now[mig] && s.Mode != mig || now[mps] && s.Mode != mps) {
			return fmt.Sprintf("%s while another mode is entered", s)
		}
		now[s.Mode] = !s.Leave
	}
	for _, m := range f.Switched {
		if now[m] != (m == f.Wanted) {
			return fmt.Sprintf("after %v it is in mode %s: %v", d.Steps, m, now[m])
		}
	}
	return ""
}
