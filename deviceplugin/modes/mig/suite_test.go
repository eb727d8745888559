// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/mig"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/sharing"
)

// suiteClaim gives every owner and container of the suite a place of its own, one
// on a card that keeps its mode and one on a card that does not.
func suiteClaim(o sharing.Owner, container string) modes.Claim {
	slice := strings.Index("abcdefgh", string(o))
	switch {
	case container == "second":
		slice = 5
	case o == "owner-10":
		slice = 6
	case slice == 7: // the eighth 1g is on another card
		return claim(o, container, place{other, "1g.10gb", 3}, place{h100, "7g.80gb", 0})
	case slice >= 0:
		return claim(o, container, place{a100, "1g.10gb", slice})
	default:
		slice = 4
	}
	return claim(o, container, place{a100, "1g.10gb", slice}, place{h100, "1g.10gb", slice})
}

func TestPreparerPassesTheSuite(t *testing.T) {
	modestest.Preparer(t, func(t *testing.T) modestest.Host { return newMachine(t) }, suiteClaim)
}

func TestSwitcherPassesTheSuite(t *testing.T) {
	t.Run("a device that is empty", func(t *testing.T) {
		modestest.Switcher(t, func(t *testing.T) modestest.Host {
			m := newMachine(t)
			m.cards.Switch(h100, false)
			return m
		}, sharing.Device{ID: h100})
	})
	t.Run("leaving a device with instances that nobody holds", func(t *testing.T) {
		crashesAndRepeats(t, func(m *machine) {
			m.byHand(place{h100, "3g.40gb", 0}, true)
			m.byHand(place{h100, "2g.20gb", 4}, false)
		}, func(p *mig.Preparer) error { return p.Leave(context.Background(), sharing.Device{ID: h100}) },
			func(t *testing.T, m *machine) {
				if in, err := m.plugin().Entered(context.Background(), sharing.Device{ID: h100}); in || err != nil {
					t.Errorf("the device is still in the mode: %v, %v", in, err)
				}
			})
	})
}

// crashesAndRepeats lets the process die at every effect of do, before it and
// after it, each time on a machine made by first, and wants that doing it again
// succeeds and leaves the machine as an undisturbed do does.
func crashesAndRepeats(t *testing.T, first func(*machine), do func(*mig.Preparer) error, then func(*testing.T, *machine)) {
	t.Helper()
	start := func() *machine {
		m := newMachine(t)
		first(m)
		return m
	}
	clean := start()
	if err := do(clean.plugin()); err != nil {
		t.Fatal(err)
	}
	total, want := clean.Effects(), clean.State()
	then(t, clean)
	for at := range total {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("effect %d of %d, late %v", at, total, late), func(t *testing.T) {
				m := start()
				m.t = t
				if do(m.preparer(at, late)) == nil {
					t.Error("the crash was not noticed")
				}
				if err := do(m.plugin()); err != nil {
					t.Fatal(err)
				}
				if got := m.State(); got != want {
					t.Errorf("after the repair the machine is\n%s\nwant\n%s", got, want)
				}
				then(t, m)
			})
		}
	}
}

// worlds are machines on which a container's partition takes more than one step.
func worlds() map[string]func(*machine) {
	return map[string]func(*machine){
		"nothing is there": func(*machine) {},
		"smaller instances that nobody holds are in the way": func(m *machine) {
			for _, start := range []int{4, 5, 6} {
				m.byHand(place{a100, "1g.10gb", start}, true)
			}
		},
		"a larger one that nobody holds is in the way": func(m *machine) { m.byHand(place{a100, "7g.80gb", 0}, true) },
		"the instance is there without a compute instance": func(m *machine) {
			m.byHand(place{a100, "3g.40gb", 4}, false)
		},
		"the instance is there with two halves in it": func(m *machine) {
			m.cards.Split(a100, m.byHand(place{a100, "3g.40gb", 4}, true))
		},
		"the instance is there, whole": func(m *machine) { m.byHand(place{a100, "3g.40gb", 4}, true) },
		"another pod that is gone had it": func(m *machine) {
			m.give(claim("gone", "main", place{a100, "2g.20gb", 4}))
			m.release("gone")
		},
	}
}

func TestACrashAtAnyEffectIsRepairedWhateverWasThere(t *testing.T) {
	c := claim("owner", "main", place{a100, "3g.40gb", 4}, place{h100, "1g.10gb", 2})
	for name, first := range worlds() {
		t.Run(name, func(t *testing.T) {
			crashesAndRepeats(t, func(m *machine) {
				first(m)
				m.give(claim("neighbour", "main", place{other, "1g.10gb", 0}))
			}, func(p *mig.Preparer) error {
				_, err := p.Prepare(context.Background(), c)
				return err
			}, func(t *testing.T, m *machine) {
				if got := m.at(m.give(c)[0]); got != "GPU-a100 3g.40gb at 4" {
					t.Errorf("the container has %s", got)
				}
			})
		})
	}
}

func TestACrashAndARebootAtAnyEffectAreRepaired(t *testing.T) {
	c := claim("owner", "main", place{a100, "3g.40gb", 4}, place{h100, "1g.10gb", 2})
	for name, first := range worlds() {
		t.Run(name, func(t *testing.T) {
			clean := newMachine(t)
			first(clean)
			clean.give(c)
			for at := range 2 * (clean.Effects() + 1) {
				m := newMachine(t)
				first(m)
				_, _ = m.preparer(at/2, at%2 == 1).Prepare(context.Background(), c)
				m.cards.Reboot()
				ids := m.give(c)
				if m.at(ids[0]) != "GPU-a100 3g.40gb at 4" || m.at(ids[1]) != "GPU-h100 1g.10gb at 2" {
					t.Errorf("effect %d: the container has %s and %s", at/2, m.at(ids[0]), m.at(ids[1]))
				}
			}
		})
	}
}

func TestACrashAtAnyEffectOfTakingBackIsRepaired(t *testing.T) {
	crashesAndRepeats(t, func(m *machine) {
		m.give(claim("owner", "init", place{a100, "1g.10gb", 0}, place{h100, "1g.10gb", 0}))
		m.give(claim("owner", "main", place{a100, "2g.20gb", 2}, place{other, "7g.80gb", 0}))
		m.give(claim("stays", "main", place{a100, "3g.40gb", 4}))
	}, func(p *mig.Preparer) error { return p.Unprepare(context.Background(), "owner") },
		func(t *testing.T, m *machine) {
			owners, err := m.plugin().Owners()
			if err != nil || fmt.Sprint(owners) != "[stays]" {
				t.Errorf("owners are %v, %v", owners, err)
			}
			m.give(claim("next", "main", place{other, "1g.10gb", 0}))
		})
}

func TestNothingIsMadeBeforeItIsWrittenDownWhoseItIs(t *testing.T) {
	c := claim("owner", "main", place{a100, "3g.40gb", 4}, place{h100, "1g.10gb", 2})
	clean := newMachine(t)
	clean.give(c)
	for at := range 2 * clean.Effects() {
		m := newMachine(t)
		_, _ = m.preparer(at/2, at%2 == 1).Prepare(context.Background(), c)
		for i := range c.Devices {
			id := c.Devices[i].Device.ID
			all, err := m.cards.Instances(id)
			if err != nil {
				t.Fatal(err)
			}
			if len(all) > 0 && !strings.Contains(m.files(), fmt.Sprintf(`"device":%q,"owner":"owner"`, id)) {
				t.Errorf("effect %d: device %s has %v, and the disk says\n%s", at/2, id, all, m.files())
			}
		}
	}
}
