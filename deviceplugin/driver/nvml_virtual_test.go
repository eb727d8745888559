// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"deviceshare/deviceplugin/driver"
)

// guest has two vGPUs, of which one is made of a partition, a card that is handed through to a
// virtual machine, and two of machines that are not virtual: one driver says so, the other nothing.
const guest = `fakegpu 1
driver 580.95.05 cuda 13.0
gpu model="NVIDIA A100-4-20C" memory=20480MiB virtual=vgpu licence=none
gpu model="NVIDIA A100-1-10C" memory=81920MiB virtual=vgpu licence=4102444800 mig=enabled
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB virtual=passthrough mig=capable
gpu model="NVIDIA A30" memory=24576MiB virtual=none mig=capable
gpu model="NVIDIA A30" memory=24576MiB mig=capable
`

// kindOf says in a word what an error is.
func kindOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, driver.ErrUnsupported):
		return "unsupported"
	case errors.Is(err, driver.ErrNoPermission):
		return "forbidden"
	case errors.Is(err, driver.ErrResetRequired):
		return "on reset"
	}
	return err.Error()
}

// playVirtual prints what the driver says of each device, and what it lets be done.
func playVirtual(gpus *driver.NVML, devices []driver.Device) error {
	watch, err := gpus.Watch(devices)
	if err != nil {
		return fmt.Errorf("a device that reports no errors is in the way: %w", err)
	}
	if _, err := watch.Wait(10 * time.Millisecond); !errors.Is(err, driver.ErrQuiet) {
		return err
	}
	if err := watch.Close(); err != nil {
		return err
	}
	for _, d := range devices {
		f, err := d.Facts()
		if err != nil {
			return err
		}
		licence, err := d.Licence()
		fmt.Printf("%v licence %+v %s, compute mode %s", f.Virtual, licence, kindOf(err), kindOf(gpus.SetComputeMode(f.UUID, driver.ExclusiveProcess)))
		fmt.Printf(", partitions %v %v %s\n", f.MIG.Capable, f.MIG.Enabled, kindOf(gpus.SetMIGMode(f.UUID, !f.MIG.Enabled)))
	}
	for _, is := range []string{"ok", fmt.Sprint(4102444800), "1700000000", "none"} {
		if out, err := exec.Command(os.Getenv("FAKEGPUCTL"), "licence", "0", is).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w", out, err)
		}
		licence, err := devices[0].Licence()
		fmt.Printf("%s is %+v %s\n", is, licence, kindOf(err))
	}
	return nil
}

func TestTheRealBindingTellsAVirtualDeviceAndItsLicence(t *testing.T) {
	const want = `true licence {Valid:false Ends:0} ok, compute mode forbidden, partitions false false unsupported
true licence {Valid:true Ends:4102444800} ok, compute mode forbidden, partitions true true forbidden
false licence {Valid:false Ends:0} unsupported, compute mode ok, partitions true false on reset
false licence {Valid:false Ends:0} unsupported, compute mode ok, partitions true false on reset
false licence {Valid:false Ends:0} unsupported, compute mode ok, partitions true false on reset
ok is {Valid:true Ends:0} ok
4102444800 is {Valid:true Ends:4102444800} ok
1700000000 is {Valid:false Ends:0} ok
none is {Valid:false Ends:0} ok`
	if got := actOn(t, "virtual", guest); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What a driver cannot answer is no reason to take a card for a vGPU, or not to read it.
func TestADriverThatDoesNotKnowTheQuestionDrivesNoVirtualDevice(t *testing.T) {
	for _, code := range []string{"3", "13", "999"} {
		t.Setenv("FAKEGPU_FAIL", "nvmlDeviceGetVirtualizationMode:1:"+code)
		got, _, _ := strings.Cut(actOn(t, "virtual", guest), "\n")
		if !strings.HasPrefix(got, "false licence") {
			t.Errorf("answer %s: %s", code, got)
		}
	}
}
