// SPDX-License-Identifier: Apache-2.0

package modestest

import (
	"context"
	"errors"
	"testing"

	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Switcher runs the suite of modes.Switcher. host makes a host whose device is
// in no mode, can enter this one without an administrator, and is used by nobody.
func Switcher(t *testing.T, host func(t *testing.T) Host, device sharing.Device) {
	t.Helper()
	ctx := context.Background()
	t.Run("a device enters the mode, again without effect, and leaves it", func(t *testing.T) {
		h := host(t)
		there(ctx, t, h, device, false)
		before := h.State()
		for range 2 {
			move(t, "enter", switcher(t, h, -1, false).Enter(ctx, device))
			there(ctx, t, h, device, true)
		}
		entered := h.State()
		for range 2 {
			move(t, "leave", switcher(t, h, -1, false).Leave(ctx, device))
			there(ctx, t, h, device, false)
		}
		if got := h.State(); got != before {
			t.Errorf("after leaving, the host is\n%s\nwant\n%s", got, before)
		}
		move(t, "enter again", switcher(t, h, -1, false).Enter(ctx, device))
		if got := h.State(); got != entered {
			t.Errorf("after entering again, the host is\n%s\nwant\n%s", got, entered)
		}
	})
	t.Run("a crash at any effect of entering is repaired by entering again", func(t *testing.T) {
		changes(ctx, t, host, device, modes.Switcher.Enter, func(Host) {}, true)
	})
	t.Run("a crash at any effect of leaving is repaired by leaving again", func(t *testing.T) {
		enter := func(h Host) { move(t, "enter", switcher(t, h, -1, false).Enter(ctx, device)) }
		changes(ctx, t, host, device, modes.Switcher.Leave, enter, false)
	})
}

func switcher(t *testing.T, h Host, at int, late bool) modes.Switcher {
	t.Helper()
	s, ok := h.Preparer(at, late).(modes.Switcher)
	if !ok {
		t.Fatal("the preparer is no switcher")
	}
	return s
}

func move(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// there wants that the device is in the mode, or not.
func there(ctx context.Context, t *testing.T, h Host, d sharing.Device, want bool) {
	t.Helper()
	got, err := switcher(t, h, -1, false).Entered(ctx, d)
	if err != nil || got != want {
		t.Errorf("in the mode: %v, %v; want %v", got, err, want)
	}
}

// changes dies at every effect of one change and repeats it.
func changes(ctx context.Context, t *testing.T, host func(*testing.T) Host, d sharing.Device,
	change func(modes.Switcher, context.Context, sharing.Device) error, first func(Host), want bool) {
	t.Helper()
	clean := host(t)
	first(clean)
	move(t, "change", change(switcher(t, clean, -1, false), ctx, d))
	total, state := clean.Effects(), clean.State()
	for _, late := range []bool{false, true} {
		for at := range total {
			h := host(t)
			first(h)
			err := change(switcher(t, h, at, late), ctx, d)
			if err == nil || errors.As(err, new(*modes.Manual)) {
				t.Errorf("effect %d (late %v): the crash was answered with %v", at, late, err)
			}
			move(t, "repeat", change(switcher(t, h, -1, false), ctx, d))
			there(ctx, t, h, d, want)
			if got := h.State(); got != state {
				t.Errorf("effect %d (late %v): after the repair the host is\n%s\nwant\n%s", at, late, got, state)
			}
		}
	}
}
