// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

const gpu = sharing.DeviceID("GPU-0")

func one(m sharing.Mode) map[sharing.DeviceID]sharing.Mode {
	return map[sharing.DeviceID]sharing.Mode{gpu: m}
}

func TestAnIdleDeviceGoesThroughAllModes(t *testing.T) {
	b := newBench(t, one(core))
	b.start()
	for _, m := range []sharing.Mode{mpsMode, migMode, slice, migMode, core, mpsMode, mpsMode} {
		b.want(gpu, m)
		b.await("mode "+string(m), b.ready(gpu, m))
	}
}

func TestDevicesOfOneNodeAreInDifferentModes(t *testing.T) {
	modes := map[sharing.DeviceID]sharing.Mode{"GPU-0": core, "GPU-1": migMode, "GPU-2": mpsMode}
	b := newBench(t, modes)
	b.start()
	for id, m := range modes {
		b.await(string(id), b.ready(id, m))
	}
}

func TestABusyDeviceMovesWhenItBecomesIdle(t *testing.T) {
	b := newBench(t, one(mpsMode))
	b.start()
	b.await("mps", b.ready(gpu, mpsMode))
	if !b.hold(gpu, mpsMode, "default/p") || !b.hold(gpu, mpsMode, "default/a") {
		t.Fatal("the device takes no pod")
	}
	b.want(gpu, migMode)
	b.await("the reason to wait", func() bool { return strings.Contains(b.shown(gpu).why, "default/a, default/p") })
	b.set(func() { b.holders[gpu] = b.holders[gpu][:1] })
	b.mover.Released()
	b.await("the reason to name who is left", func() bool { return strings.HasSuffix(b.shown(gpu).why, ": default/p") })
	b.set(func() {
		if !b.entered[gpu][mpsMode] {
			t.Error("the mode was left under its holder")
		}
	})
	if b.hold(gpu, migMode, "default/q") || b.hold(gpu, mpsMode, "default/q") {
		t.Error("a device that waits to change its mode took a pod")
	}
	b.release(gpu)
	b.await("mig", b.ready(gpu, migMode))
	b.set(func() {
		if n := strings.Count(strings.Join(b.told, "\n"), "waits for 2: "); n != 1 {
			t.Errorf("told %d times that it waits: %q", n, b.told)
		}
	})
}

func TestAModeWantedBackBeforeItsPodsWereGoneChangesNothing(t *testing.T) {
	b := newBench(t, one(mpsMode))
	b.start()
	b.await("mps", b.ready(gpu, mpsMode))
	b.hold(gpu, mpsMode, "default/p")
	tries := 0
	b.set(func() { tries = b.tries })
	b.want(gpu, core)
	b.await("the reason to wait", func() bool { return b.shown(gpu).why != "" })
	b.want(gpu, mpsMode)
	b.await("mps again", b.ready(gpu, mpsMode))
	b.set(func() {
		if b.tries != tries {
			t.Error("the device was touched")
		}
	})
}

func TestAfterARestartNothingIsTouchedThatIsHeld(t *testing.T) {
	b := newBench(t, map[sharing.DeviceID]sharing.Mode{"GPU-0": migMode, "GPU-1": core})
	b.entered["GPU-0"][migMode], b.entered["GPU-1"][mpsMode] = true, true
	b.holders["GPU-0"], b.holders["GPU-1"] = held(migMode, "default/p"), held(mpsMode, "default/q")
	b.start()
	b.set(func() {
		if b.shown("GPU-0") != (standing{mode: migMode}) || b.tries != 0 {
			t.Errorf("shown %+v after %d changes", b.shown("GPU-0"), b.tries)
		}
	})
	b.await("the reason to wait", func() bool { return strings.Contains(b.shown("GPU-1").why, "default/q") })
	b.release("GPU-1")
	b.await("the mode left over to be left", b.ready("GPU-1", core))
}

func TestADeviceIsNotChangedUnderAPodThatAnotherDevicePluginStarted(t *testing.T) {
	b := newBench(t, map[sharing.DeviceID]sharing.Mode{"GPU-0": migMode, "GPU-1": core, "GPU-2": core})
	b.entered["GPU-2"][migMode] = true
	for id := range b.wanted {
		b.holders[id] = held("", "default/p")
	}
	b.start()
	b.set(func() {
		for id, why := range map[sharing.DeviceID]string{"GPU-0": "its mode becomes mig", "GPU-2": "its mode becomes hami-core"} {
			if got := b.shown(id); got.mode != "" || !strings.Contains(got.why, why) || !strings.Contains(got.why, "default/p") {
				t.Errorf("device %s is shown as %+v", id, got)
			}
		}
		if b.shown("GPU-1") != (standing{mode: core}) || b.tries != 0 {
			t.Errorf("shown %+v after %d changes", b.shown("GPU-1"), b.tries)
		}
	})
	b.release("GPU-0")
	b.await("mig when it is gone", b.ready("GPU-0", migMode))
}

func TestAModeThatAnotherProcessEnteredHalfIsEnteredAgain(t *testing.T) {
	b := newBench(t, one(mpsMode))
	b.entered[gpu][mpsMode] = true // or only a directory of it
	b.start()
	b.await("mps", b.ready(gpu, mpsMode))
	b.set(func() {
		if b.tries != 1 {
			t.Errorf("it was entered %d times, want once", b.tries)
		}
	})
}

func TestEachChangeIsToldOnceAndARestartTellsNothing(t *testing.T) {
	b := newBench(t, one(mpsMode))
	b.start()
	for _, m := range []sharing.Mode{core, slice, migMode} {
		b.want(gpu, m)
		b.await("mode "+string(m), b.ready(gpu, m))
	}
	b.stop()
	b.start()
	b.await("mig again", b.ready(gpu, migMode))
	b.stop()
	want := "GPU-0 is in mps, GPU-0 is in hami-core, GPU-0 is in time-slicing, GPU-0 is in mig"
	if got := strings.Join(b.told, ", "); got != want {
		t.Errorf("told %s", got)
	}
}

func TestWhatTookTheDeviceOutOfItsModeIsUndone(t *testing.T) {
	b := newBench(t, one(migMode))
	b.start()
	b.await("mig", b.ready(gpu, migMode))
	b.set(func() { b.entered[gpu][migMode] = false }) // a reset
	b.await("mig again", func() bool { return b.entered[gpu][migMode] && b.shown(gpu).mode == migMode })
}

func TestAFailureIsShownToldOnceAndTriedAgain(t *testing.T) {
	for _, step := range []string{"enter mig", "leave mps", "entered mps"} {
		t.Run(step, func(t *testing.T) {
			b := newBench(t, one(migMode))
			b.entered[gpu][mpsMode] = true
			b.fails[step] = errors.New("in use by a monitor")
			b.start()
			b.await("the reason", func() bool { return strings.Contains(b.shown(gpu).why, "in use by a monitor") })
			if step != "entered mps" {
				b.await("several tries", func() bool { return b.tries > 5 })
			}
			b.set(func() {
				if n := strings.Count(strings.Join(b.told, "\n"), "failed"); n != 1 {
					t.Errorf("told %d times: %q", n, b.told)
				}
				delete(b.fails, step)
			})
			b.await("mig", b.ready(gpu, migMode))
		})
	}
}

func TestAnErrorThatPassesIsNeitherShownNorToldAndTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		step   string
		wanted sharing.Mode
		shown  standing
	}{
		"looking at a device that is ready":    {"entered mps", core, standing{mode: core}},
		"a step on the way into a wanted mode": {"enter mig", migMode, standing{why: "it is being brought into mode mig"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, one(core))
			b.start()
			b.await("the start", b.ready(gpu, core))
			asked := 0
			b.set(func() { b.fails[c.step], asked = fmt.Errorf("ask: %w", driver.ErrClosed), b.asked })
			b.want(gpu, c.wanted)
			b.await("several looks", func() bool { return b.asked > asked+20 })
			b.set(func() {
				if b.shown(gpu) != c.shown || len(b.told) != 0 {
					t.Errorf("shown %+v, told %q", b.shown(gpu), b.told)
				}
				delete(b.fails, c.step)
			})
			b.await("the mode", b.ready(gpu, c.wanted))
		})
	}
}

func TestWhatOnlyAnAdministratorCanDoIsToldOnceAndNotTriedInALoop(t *testing.T) {
	b := newBench(t, one(migMode))
	b.fails["enter mig"] = fmt.Errorf("switch: %w", &modes.Manual{Device: gpu, Why: "a reset is needed", Do: "nvidia-smi --gpu-reset -i 0"})
	b.start()
	begin := time.Now()
	b.await("tries", func() bool { return b.tries >= 4 })
	if took := time.Since(begin); took < 3*10*time.Millisecond-5*time.Millisecond {
		t.Errorf("four tries in %v, want one each 10 ms", took)
	}
	b.set(func() {
		if got := b.shown(gpu).why; got != "a reset is needed: nvidia-smi --gpu-reset -i 0" {
			t.Errorf("shown %q", got)
		}
		if len(b.told) != 1 || !strings.Contains(b.told[0], "nvidia-smi --gpu-reset") {
			t.Errorf("told %q", b.told)
		}
		delete(b.fails, "enter mig")
	})
	b.await("mig", b.ready(gpu, migMode))
}

func TestADeviceThatCannotBeChangedGoesBackWhenItsOldModeIsWanted(t *testing.T) {
	b := newBench(t, one(mpsMode))
	b.start()
	b.await("mps", b.ready(gpu, mpsMode))
	b.set(func() { b.fails["enter mig"] = errors.New("no") })
	b.want(gpu, migMode)
	b.await("the reason", func() bool { return strings.Contains(b.shown(gpu).why, "enter mig: no") })
	b.want(gpu, mpsMode)
	b.await("mps", b.ready(gpu, mpsMode))
}

func TestASlowDeviceHoldsUpNoOther(t *testing.T) {
	b := newBench(t, map[sharing.DeviceID]sharing.Mode{"GPU-0": core, "GPU-1": core})
	b.start()
	b.set(func() { b.slow = make(chan struct{}) })
	b.want("GPU-0", migMode)
	b.want("GPU-1", slice)
	b.await("the other device", b.ready("GPU-1", slice))
	b.await("the reason", func() bool { return b.shown("GPU-0").why == "it is being brought into mode mig" })
	close(b.slow)
	b.await("the slow device", b.ready("GPU-0", migMode))
}

// A placement may arrive at any moment of a change. Whoever gets in holds a device
// that is in his mode and stays there; the switchers report any other order.
func TestContainersThatStartWhileTheModeChangesGetTheirModeOrNothing(t *testing.T) {
	b := newBench(t, one(mpsMode))
	b.start()
	modes := []sharing.Mode{mpsMode, migMode, core, slice}
	var wait sync.WaitGroup
	started := make([]int, len(modes))
	for i, m := range modes {
		wait.Go(func() {
			for n := range 300 {
				if !b.hold(gpu, m, fmt.Sprintf("default/%s-%d", m, n)) {
					time.Sleep(50 * time.Microsecond)
					continue
				}
				started[i]++
				b.set(func() {
					if switched := m == migMode || m == mpsMode; switched && !b.only(gpu, m) {
						t.Errorf("a pod of mode %s holds a device with %v", m, b.entered[gpu])
					}
				})
				b.release(gpu)
			}
		})
	}
	for n := range 60 {
		b.want(gpu, modes[n%len(modes)])
		time.Sleep(300 * time.Microsecond)
	}
	wait.Wait()
	b.want(gpu, migMode)
	b.await("the end", b.ready(gpu, migMode))
	t.Logf("started %v", started)
}
