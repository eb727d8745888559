// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deviceshare/sharing"
)

const card = `fakegpu 1
driver 580.95.05 cuda 13.0
gpu model="NVIDIA A30" memory=24576MiB cc=8.0 numa=1 mig=none pci=0000:47:00.0 sms=56
`

// library runs CUDA programs under the real libvgpu.so on the fake driver, all with
// one region.
type library struct {
	t      *testing.T
	env    []string
	client string
	region string
}

func newLibrary(t *testing.T) *library {
	t.Helper()
	build, err := filepath.Abs("../../e2e/fakegpu/build")
	if err != nil {
		t.Fatal(err)
	}
	preload, err := filepath.Abs("../../hami-core/build/libvgpu.so")
	if err != nil {
		t.Fatal(err)
	}
	for path, how := range map[string]string{filepath.Join(build, "cudaclient"): "make -C e2e/fakegpu", preload: "make -C hami-core"} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("%s is not built: %s", path, how)
		}
	}
	if _, err := os.Stat("/usr/local/vgpu/limits"); err == nil {
		t.Skip("this machine has a limits file, which would decide")
	}
	state, dev := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(state, "topology"), []byte(card), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", filepath.Join(dev, "nvidia0")); err != nil {
		t.Fatal(err)
	}
	l := &library{t: t, client: filepath.Join(build, "cudaclient"), region: filepath.Join(t.TempDir(), "vgpu.cache")}
	l.env = append(os.Environ(), "LD_PRELOAD="+preload, "LD_LIBRARY_PATH="+build, "FAKEGPU_DIR="+state, "FAKEGPU_DEV="+dev,
		"FAKEGPU_CONTEXT=64", "CUDA_DEVICE_MEMORY_LIMIT_0=1024m", "CUDA_DEVICE_SM_LIMIT=50", "CUDA_DEVICE_MEMORY_SHARED_CACHE="+l.region)
	return l
}

// start runs steps and waits until so much memory is used in all.
func (l *library) start(used sharing.Bytes, steps ...string) *exec.Cmd {
	l.t.Helper()
	cmd := exec.Command(l.client, append(steps, "sleep", "60")...)
	cmd.Env = l.env
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	deadline, last := time.Now().Add(10*time.Minute), Region{}
	for time.Now().Before(deadline) {
		region, err := ReadRegion(l.region, func() error { return nil })
		if err == nil && len(region.Devices) == 1 && region.Devices[0].Used == used {
			return cmd
		}
		last = region
		time.Sleep(5 * time.Millisecond)
	}
	l.t.Fatalf("%v: the region is %+v, want %s used", steps, last, used)
	return nil
}

// read is what is there of the only device.
func (l *library) read() DeviceUsage {
	l.t.Helper()
	region, err := ReadRegion(l.region, func() error { return nil })
	if err != nil {
		l.t.Fatal(err)
	}
	if len(region.Devices) != 1 || !strings.HasPrefix(string(region.Devices[0].ID), "GPU-") {
		l.t.Fatalf("the devices are %+v", region.Devices)
	}
	return region.Devices[0]
}

func TestTheRegionOfTheRealLibraryIsRead(t *testing.T) {
	l := newLibrary(t)
	first := l.start(sharing.MiBs(164), "launch", "200", "alloc", "100")
	l.start(sharing.MiBs(428), "alloc", "200")
	d := l.read()
	if !d.Measured || d.Busy <= 0 || d.Processes != 2 || d.Limit != sharing.GiB || d.Uncounted != 0 {
		t.Errorf("two processes have %+v, want a limit of 1GiB", d)
	}
	_ = first.Process.Kill()
	_ = first.Wait()
	if after := l.read(); after.Used != sharing.MiBs(264) || after.Processes != 1 || after.Busy < d.Busy {
		t.Errorf("after one was killed the other has %+v", after)
	}
	// Reading took no part: the library goes on as before.
	l.start(sharing.MiBs(264+64+600), "alloc", "600")
}
