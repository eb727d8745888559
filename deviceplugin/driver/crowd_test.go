// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/mig"
	"deviceshare/sharing"
)

// cardOf is the UUID of a device of the crowd's machine.
func cardOf(n int) sharing.DeviceID {
	return sharing.DeviceID(fmt.Sprintf("GPU-11111111-0000-0000-0000-%012d", n))
}

// crowded is a machine of eight devices whose mode changes at once.
func crowded() string {
	text := "fakegpu 1\ndriver 580.95.05 cuda 13.0\n"
	for n := range 8 {
		text += fmt.Sprintf("gpu model=\"NVIDIA H100 80GB HBM3\" memory=81559MiB cc=9.0 numa=0 mig=capable pci=0000:%02x:00.0 sms=132 uuid=%s\n", 7+n, cardOf(n))
	}
	return text
}

// playCrowd prepares seven containers on each of eight devices at once, on a driver that takes as
// long as drivers do, in the time that the kubelet gives each of them.
func playCrowd(gpus *driver.NVML) error {
	for function, ms := range map[string]string{"nvmlDeviceCreateGpuInstanceWithPlacement": "400", "nvmlGpuInstanceCreateComputeInstance": "200"} {
		if err := ctl("slow", function, ms); err != nil {
			return err
		}
	}
	root, err := os.MkdirTemp("", "mig")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(root) }()
	p := mig.New(mig.Config{Files: host.OS{}, Root: root, Driver: gpus})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // ends what hangs
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for n := range 8 * 7 {
		group.Go(func() error {
			_, err := p.Prepare(ctx, modes.Claim{
				ID: fmt.Sprint("id-", n), Owner: sharing.Owner(fmt.Sprint("pod-", n)), Container: "main",
				Devices: []modes.ClaimedDevice{{
					Device: sharing.Device{ID: cardOf(n / 7)},
					Share:  sharing.Share{Device: cardOf(n / 7), Mode: sharing.MIG, Partition: sharing.Partition{Profile: "1g.10gb", Start: n % 7, Size: 1}},
				}},
			})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	there := 0
	for n := range 8 {
		all, err := gpus.Instances(cardOf(n))
		if err != nil {
			return err
		}
		for i := range all {
			if all[i].Whole() {
				there++
			}
		}
	}
	fmt.Println(there)
	return nil
}

func TestFiftySixPartitionsAreMadeInTheTimeOfOneStart(t *testing.T) {
	if got := actOn(t, "crowd", crowded()); !strings.HasSuffix(got, "56") {
		t.Errorf("whole instances: %s", got)
	}
}
