// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/sharing"
)

func TestPreparerPassesTheSuite(t *testing.T) {
	modestest.Preparer(t, func(t *testing.T) modestest.Host { return newHost(t) }, asks)
}

func TestSwitcherPassesTheSuite(t *testing.T) {
	modestest.Switcher(t, func(t *testing.T) modestest.Host { return newHost(t) }, gpu())
}

func lines(env []modes.Variable) []string {
	var out []string
	for _, v := range env {
		out = append(out, v.Name+"="+v.Value)
	}
	return out
}

func TestTheEnvironmentHasThePlacementsLimitsByTheContainersOrdinal(t *testing.T) {
	h := newHost(t)
	in := inject(t, h, asks("uid", "main"))
	pipe := filepath.Join(h.directories, "GPU-a", "pipe")
	for _, want := range []string{
		"CUDA_MPS_PIPE_DIRECTORY=" + pipe, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1000M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30",
	} {
		if !slices.Contains(lines(in.Env), want) {
			t.Errorf("the environment lacks %s: %q", want, lines(in.Env))
		}
	}
	if !slices.IsSortedFunc(in.Env, func(a, b modes.Variable) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("the environment is not sorted: %q", lines(in.Env))
	}
	if !slices.Contains(in.Mounts, modes.Mount{Host: pipe, Container: pipe}) {
		t.Errorf("the pipe directory is not mounted where the daemon has it: %+v", in.Mounts)
	}
	if !slices.Contains(in.Mounts, modes.Mount{Host: filepath.Join(h.directories, "GPU-a", "shm"), Container: "/dev/shm"}) {
		t.Errorf("the daemon's /dev/shm is not the container's: %+v", in.Mounts)
	}
}

func TestMemoryIsHeldOverAllProcessesAndComputeIsLeftToMPS(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	got, err := os.ReadFile(filepath.Join(h.root, "containers", "uid_main", "limits"))
	want := "vgpu-limits 1\nregion /tmp/vgpu/vgpu.cache\npolicy disable\npriority 1\ndevice 0 GPU-a memory=1048576000 cores=0\n"
	if err != nil || string(got) != want {
		t.Errorf("the limits are\n%s(%v), want\n%s", got, err, want)
	}
}

func TestWhatTheImagePreloadsIsKeptHereToo(t *testing.T) {
	h := newHost(t)
	in := inject(t, h, asks("uid", "main"))
	file := filepath.Join(h.root, "containers", "uid_main", "ld.so.preload")
	if len(in.Hooks) != 1 || !slices.Contains(in.Hooks[0].Args, "--file="+file) {
		t.Errorf("no hook writes %s: %+v", file, in.Hooks)
	}
}

func TestSharesWithoutAComputeShareAreNotCapped(t *testing.T) {
	for _, cores := range []sharing.Percent{0, 100} {
		c := asks("uid", "main")
		c.Devices[0].Share.Cores = cores
		for _, line := range lines(inject(t, newHost(t), c).Env) {
			if strings.HasPrefix(line, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") {
				t.Errorf("%d%%: the environment has %s", cores, line)
			}
		}
	}
}

func TestAWholeDeviceIsAClientWithoutLimits(t *testing.T) {
	c := asks("uid", "main")
	c.Devices[0].Share.Whole = true
	in := inject(t, newHost(t), c)
	if len(in.Env) != 1 || in.Env[0].Name != "CUDA_MPS_PIPE_DIRECTORY" || len(in.Mounts) != 2 || len(in.Hooks) != 0 {
		t.Errorf("the injection is %+v", in)
	}
}

func TestTheDaemonGetsItsDefaultsBeforeItsFirstClient(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	want := []string{"set_default_device_pinned_mem_limit 0 81920M", "set_default_active_thread_percentage 100", "get_default_active_thread_percentage"}
	if !slices.Equal(h.commands, want) {
		t.Errorf("the daemon was told %q, want %q", h.commands, want)
	}
	if h.modes["GPU-a"] != driver.ExclusiveProcess {
		t.Error("others than the server may have contexts")
	}
}

func TestARestartedPluginAdoptsTheDaemon(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid-1", "main"))
	first := *h.daemonOf("GPU-a")
	inject(t, h, asks("uid-2", "main"))
	if again := *h.daemonOf("GPU-a"); again.pid != first.pid || h.starts != 1 {
		t.Errorf("%d starts, the daemon was %d and is %d", h.starts, first.pid, again.pid)
	}
}

func TestADaemonThatAContainerCommandedIsToldItsDefaultsAgain(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid-1", "main"))
	h.daemonOf("GPU-a").percentage = 50
	inject(t, h, asks("uid-2", "main"))
	if d := h.daemonOf("GPU-a"); d.percentage != 100 || h.starts != 1 {
		t.Errorf("the daemon is %+v after %d starts", d, h.starts)
	}
}

func TestADeviceThatIsScaledAnewIsToldToTheDaemonThatRuns(t *testing.T) {
	for name, change := range map[string]func(*sharing.Device){
		"compute": func(d *sharing.Device) { d.Cores = 80 },
		"memory":  func(d *sharing.Device) { d.Memory = 40 * sharing.GiB },
	} {
		t.Run(name, func(t *testing.T) {
			h, c := newHost(t), asks("uid-2", "main")
			inject(t, h, asks("uid-1", "main"))
			change(&c.Devices[0].Device)
			inject(t, h, c)
			want := c.Devices[0].Device
			d := h.daemonOf("GPU-a")
			if d.percentage != float64(want.Cores) || d.memory != fmt.Sprintf("%dM", want.Memory/sharing.MiB) || h.starts != 1 {
				t.Errorf("the daemon is %+v after %d starts", d, h.starts)
			}
			told := len(h.commands)
			inject(t, h, c)
			if got := h.commands[told:]; len(got) != 1 {
				t.Errorf("told again, it is told %q", got)
			}
		})
	}
}

func TestADaemonThatDoesNotTakeItsDefaultsServesNobody(t *testing.T) {
	h, c := newHost(t), asks("uid", "main")
	h.stubborn = true
	_, err := h.fresh().Prepare(context.Background(), c)
	if err == nil || !strings.Contains(err.Error(), "does not take the default thread percentage 100") {
		t.Errorf("the answer is %v", err)
	}
}

func TestWhatCannotBeServedIsRefused(t *testing.T) {
	cases := map[string]struct {
		spoil func(*fakeHost, *modes.Claim)
		want  string
	}{
		"two devices": {func(_ *fakeHost, c *modes.Claim) {
			second := c.Devices[0]
			second.Device.ID, second.Share.Device = "GPU-b", "GPU-b"
			c.Devices = append(c.Devices, second)
		}, "vgpu-number: 1"},
		"a part without limit": {func(_ *fakeHost, c *modes.Claim) { c.Devices[0].Share.Memory = 0 }, "no limits"},
		"an owner with the separator": {func(_ *fakeHost, c *modes.Claim) {
			c.Owner, c.Devices[0].Share.Whole = "uid_main", true
		}, "underscore"},
		"a device without compute modes": {func(h *fakeHost, _ *modes.Claim) { h.noModes = driver.ErrUnsupported }, "or give the device another mode"},
		"no library":                     {func(h *fakeHost, _ *modes.Claim) { h.library += ".gone" }, "nothing would enforce"},
		"a daemon that does not start": {func(h *fakeHost, _ *modes.Claim) {
			h.noStart = errors.New("no such file")
		}, "start the MPS control daemon of device GPU-a: no such file"},
		"a compute mode that must not be set": {func(h *fakeHost, _ *modes.Claim) { h.forbid = driver.ErrNoPermission }, "nvidia-smi -i GPU-a -c 3"},
		"a host where nothing can be mounted": {func(h *fakeHost, _ *modes.Claim) {
			h.noSpace = errors.New("mount: not permitted")
		}, "the containers of device GPU-a could fill the host's memory: mount: not permitted"},
		"a broken record": {func(h *fakeHost, _ *modes.Claim) {
			_ = os.MkdirAll(filepath.Join(h.root, "devices"), 0o700)
			_ = os.WriteFile(filepath.Join(h.root, "devices", "GPU-a"), []byte("{}"), 0o600)
		}, "version 0, want 1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h, c := newHost(t), asks("uid", "main")
			tc.spoil(h, &c)
			_, err := h.fresh().Prepare(context.Background(), c)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestOwnersListsWhoHasSomething(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid-1", "a"))
	whole := asks("uid-2", "b")
	whole.Devices[0].Share.Whole = true
	inject(t, h, whole)
	owners, err := h.fresh().Owners()
	if err != nil || fmt.Sprint(owners) != "[uid-1 uid-2]" {
		t.Errorf("owners are %v, %v", owners, err)
	}
}

func TestADeviceWithClientsDoesNotLeaveTheMode(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	h.daemonOf("GPU-a").clients = []int{4242}
	err := h.fresh().Leave(context.Background(), gpu())
	if err == nil || !strings.Contains(err.Error(), "processes 4242") {
		t.Errorf("the answer is %v", err)
	}
	if h.modes["GPU-a"] != driver.ExclusiveProcess || h.daemonOf("GPU-a") == nil {
		t.Error("it left all the same")
	}
	h.daemonOf("GPU-a").clients = nil
	if err := h.fresh().Leave(context.Background(), gpu()); err != nil || h.modes["GPU-a"] != driver.DefaultComputeMode || h.daemonOf("GPU-a") != nil {
		t.Errorf("without clients: %v, mode %d", err, h.modes["GPU-a"])
	}
}

func TestADeviceGetsTheComputeModeBackThatItHad(t *testing.T) {
	for _, before := range []driver.ComputeMode{driver.DefaultComputeMode, 2, driver.ExclusiveProcess} {
		h := newHost(t)
		h.modes["GPU-a"] = before
		inject(t, h, asks("uid", "main"))
		err := h.fresh().Leave(context.Background(), gpu())
		if err != nil || h.modes["GPU-a"] != before {
			t.Errorf("it had %d and has %d (%v)", before, h.modes["GPU-a"], err)
		}
	}
}

func TestAComputeModeThatMustNotBeSetIsForTheAdministrator(t *testing.T) {
	for _, why := range []error{driver.ErrNoPermission, driver.ErrUnsupported} {
		h := newHost(t)
		h.forbid = why
		var manual *modes.Manual
		if err := h.fresh().Enter(context.Background(), gpu()); !errors.As(err, &manual) || manual.Device != "GPU-a" || !strings.Contains(manual.Do, "nvidia-smi -i GPU-a -c 3") {
			t.Errorf("%v is answered with %v", why, err)
		}
	}
}

// Whoever types nvidia-smi in a virtual machine is refused as we were.
func TestAComputeModeThatAVirtualMachineMustNotSetIsNotForItsAdministrator(t *testing.T) {
	for _, why := range []error{driver.ErrNoPermission, driver.ErrUnsupported} {
		h := newHost(t)
		h.forbid = why
		guest := gpu()
		guest.Virtual = true
		var manual *modes.Manual
		err := h.fresh().Enter(context.Background(), guest)
		if !errors.As(err, &manual) || strings.Contains(manual.Do, "nvidia-smi") || !strings.Contains(manual.Do, "hami-core or time-slicing") {
			t.Errorf("%v is answered with %v", why, err)
		}
		if err := h.fresh().Leave(context.Background(), guest); err != nil {
			t.Errorf("it cannot leave what it never was in: %v", err)
		}
	}
}

func TestAVirtualMachineThatMaySetTheComputeModeHasTheMode(t *testing.T) {
	h, guest := newHost(t), gpu()
	guest.Virtual = true
	if err := h.fresh().Enter(context.Background(), guest); err != nil || h.modes["GPU-a"] != driver.ExclusiveProcess {
		t.Errorf("mode %d (%v)", h.modes["GPU-a"], err)
	}
}
