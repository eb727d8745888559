// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// playLoad runs a program on a device, which computes for a while and keeps what it has.
func playLoad(gpus *driver.NVML, devices []driver.Device) error {
	facts, err := devices[2].Facts()
	if err != nil {
		return err
	}
	before, err := gpus.Load(string(facts.UUID))
	if err != nil {
		return err
	}
	client := exec.Command(os.Getenv("CUDACLIENT"), "device", "2", "alloc", "100", "launch", "300", "env", "launch", "5000", "forever")
	client.Env = append(os.Environ(), "FAKEGPU_CONTEXT=64")
	told, err := client.StdoutPipe()
	if err != nil {
		return err
	}
	if err := client.Start(); err != nil {
		return err
	}
	defer func() { _ = client.Process.Kill(); _ = client.Wait() }()
	for lines := bufio.NewScanner(told); lines.Scan() && !strings.HasPrefix(lines.Text(), "env"); {
	}
	during, err := gpus.Load(string(facts.UUID))
	if err != nil {
		return err
	}
	busy, err := gpus.BusyByProcess(facts.UUID, time.Second)
	if err != nil {
		return err
	}
	_, gone := gpus.Load("GPU-none")
	fmt.Println(before.Memory == facts.Memory, before.IsBusyKnown, before.Busy, during.Used.Less(before.Used) == sharing.MiBs(164),
		len(busy) == 1, busy[client.Process.Pid] > 0, gone != nil)
	return nil
}

// playPartitionLoad asks about a partition beside its device, of which the driver does not tell
// who computes.
func playPartitionLoad(gpus *driver.NVML) error {
	if err := gpus.SetMIGMode(gpuHopper, true); err != nil {
		return err
	}
	gi, err := gpus.CreateGPUInstance(gpuHopper, "1g.10gb", 0)
	if err != nil {
		return err
	}
	made, err := gpus.CreateComputeInstance(gpuHopper, gi)
	if err != nil {
		return err
	}
	part, err := gpus.Load(made.UUID)
	if err != nil {
		return err
	}
	all, err := gpus.Load(string(gpuHopper))
	fmt.Println(part.Memory > 0, part.Memory < all.Memory/7, part.Used == 0, err)
	return nil
}

func TestTheRealBindingSaysHowMuchOfADeviceIsInUse(t *testing.T) {
	if got := act(t, "load"); got != "true true 0 true true true true" {
		t.Errorf("the answers are %q", got)
	}
}

func TestTheRealBindingSaysHowMuchOfAPartitionIsInUse(t *testing.T) {
	if got := actOn(t, "load of a partition", ages); got != "true true true <nil>" {
		t.Errorf("the answers are %q", got)
	}
}
