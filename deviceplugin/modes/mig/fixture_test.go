// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"deviceshare/deviceplugin/driver/migtest"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/mig"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest"
)

const (
	a100  = sharing.DeviceID("GPU-a100")
	other = sharing.DeviceID("GPU-other")
	h100  = sharing.DeviceID("GPU-h100")
)

// machine is a host with two A100 and one H100, all partitioned.
type machine struct {
	t      *testing.T
	root   string
	cards  *migtest.Hardware
	latest *modestest.Crashing
	notes  []string // of changes of the hardware
	// Patience of the preparers made from now on.
	patience time.Duration
	// byDefault says that nobody gave the devices their mode.
	byDefault bool
	mu        sync.Mutex
}

var _ modestest.Rebooting = (*machine)(nil)

func newMachine(t *testing.T) *machine {
	t.Helper()
	models := sharingtest.Models()
	m := &machine{t: t, root: filepath.Join(t.TempDir(), "mig"), cards: migtest.New(
		migtest.Card{ID: a100, MIG: *models["A100-80"].MIG},
		migtest.Card{ID: other, MIG: *models["A100-80"].MIG},
		migtest.Card{ID: h100, MIG: *models["H100"].MIG, Resetless: true},
	)}
	for _, id := range []sharing.DeviceID{a100, other, h100} {
		m.cards.Switch(id, true)
	}
	return m
}

// Preparer implements modestest.Host.
func (m *machine) Preparer(at int, late bool) modes.Preparer { return m.preparer(at, late) }

func (m *machine) preparer(at int, late bool) *mig.Preparer {
	m.latest = &modestest.Crashing{Under: host.OS{}, At: at, Late: late}
	return mig.New(mig.Config{
		Files: m.latest, Root: m.root, Driver: migtest.Crashing(m.cards, m.latest), Patience: m.patience,
		Pause: func(ctx context.Context, _ int) error { return ctx.Err() },
		Given: func(sharing.DeviceID) bool { return !m.byDefault },
		Note:  m.note,
	})
}

func (m *machine) note(id sharing.DeviceID, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes = append(m.notes, fmt.Sprintf("%s: %s", id, what))
}

// plugin is a preparer that does not die.
func (m *machine) plugin() *mig.Preparer { return m.preparer(-1, false) }

// Effects implements modestest.Host.
func (m *machine) Effects() int { return m.latest.Effects() }

// Reboot implements modestest.Rebooting.
func (m *machine) Reboot() { m.cards.Reboot() }

// State implements modestest.Host: what is held, and the instances at those
// places. Instances that nobody holds are a cache that nobody sees.
func (m *machine) State() string {
	var b strings.Builder
	held := m.files()
	fmt.Fprintln(&b, regexp.MustCompile(`MIG-[0-9a-f-]+`).ReplaceAllString(held, "MIG-x"))
	for _, line := range strings.Split(m.cards.String(), "\n") {
		place := regexp.MustCompile(`^ +(\S+) at (\d+),`).FindStringSubmatch(line)
		if place == nil || strings.Contains(held, fmt.Sprintf(`"profile":%q,"start":%s,`, place[1], place[2])) {
			fmt.Fprintln(&b, line)
		}
	}
	return b.String()
}

// files lists every file with mode and content.
func (m *machine) files() string {
	var b strings.Builder
	_ = filepath.WalkDir(m.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		text, _ := os.ReadFile(path)
		info, _ := d.Info()
		rel, _ := filepath.Rel(m.root, path)
		fmt.Fprintf(&b, "%s %v %s", rel, info.Mode(), text)
		return nil
	})
	return b.String()
}

// place is one partition of a device.
type place struct {
	device  sharing.DeviceID
	profile string
	start   int
}

var sizes = map[byte]int{'1': 1, '2': 2, '3': 4, '4': 4, '7': 8}

// claim is a container's claim of partitions.
func claim(o sharing.Owner, container string, places ...place) modes.Claim {
	c := modes.Claim{ID: string(o) + "." + container, Owner: o, Namespace: "default", Pod: "p", Container: container}
	for _, p := range places {
		size := sizes[p.profile[0]]
		if strings.HasPrefix(p.profile, "1g.20gb") {
			size = 2
		}
		c.Devices = append(c.Devices, modes.ClaimedDevice{
			Device: sharing.Device{ID: p.device, Mode: sharing.MIG},
			Share: sharing.Share{Device: p.device, Mode: sharing.MIG, Memory: sharing.GiB,
				Partition: sharing.Partition{Profile: p.profile, Start: p.start, Size: size, Geometry: "group1"}},
		})
	}
	return c
}

// give prepares and returns the MIG devices.
func (m *machine) give(c modes.Claim) []sharing.DeviceID {
	m.t.Helper()
	in, err := m.plugin().Prepare(context.Background(), c)
	if err != nil {
		m.t.Fatalf("prepare %s: %v", c.ID, err)
	}
	return in.Devices
}

// refuse wants that preparing fails and that the error says all of these.
func (m *machine) refuse(c modes.Claim, want ...string) error {
	m.t.Helper()
	in, err := m.plugin().Prepare(context.Background(), c)
	if err == nil {
		m.t.Fatalf("prepare %s gave %v", c.ID, in.Devices)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			m.t.Errorf("the error does not say %q: %v", w, err)
		}
	}
	return err
}

// at is where a MIG device is.
func (m *machine) at(uuid sharing.DeviceID) string {
	m.t.Helper()
	id, gi, _, ok := m.cards.Locate(string(uuid))
	if !ok {
		return "nowhere"
	}
	all, err := m.cards.Instances(id)
	if err != nil {
		m.t.Fatal(err)
	}
	for i := range all {
		if all[i].GI == gi {
			return fmt.Sprintf("%s %s at %d", id, all[i].Profile, all[i].Start)
		}
	}
	return "nowhere"
}

// byHand makes an instance as an administrator would and returns its number.
func (m *machine) byHand(p place, compute bool) int {
	m.t.Helper()
	gi, err := m.cards.CreateGPUInstance(p.device, p.profile, p.start)
	if err == nil && compute {
		_, err = m.cards.CreateComputeInstance(p.device, gi)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return gi
}

// release takes back what an owner has.
func (m *machine) release(o sharing.Owner) {
	m.t.Helper()
	if err := m.plugin().Unprepare(context.Background(), o); err != nil {
		m.t.Fatal(err)
	}
}

// manual wants that only an administrator can, and returns how.
func manual(t *testing.T, err error) *modes.Manual {
	t.Helper()
	var m *modes.Manual
	if !errors.As(err, &m) {
		t.Fatalf("the error is %v, want one for the administrator", err)
	}
	return m
}
