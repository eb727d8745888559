// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/mig"
	"deviceshare/sharing"
)

// ages is a card whose mode changes at once, one that wants a reset, and one that
// cannot be partitioned.
const ages = `fakegpu 1
driver 580.95.05 cuda 13.0
gpu model="NVIDIA H100 80GB HBM3" memory=81559MiB cc=9.0 numa=0 mig=capable pci=0000:07:00.0 sms=132 uuid=GPU-11111111-0000-0000-0000-000000000001
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB cc=8.0 numa=0 mig=capable pci=0000:0f:00.0 sms=108 uuid=GPU-22222222-0000-0000-0000-000000000002
gpu model="Tesla T4" memory=15360MiB cc=7.5 numa=1 mig=none pci=0000:47:00.0 sms=40 uuid=GPU-33333333-0000-0000-0000-000000000003
`

const (
	gpuHopper = sharing.DeviceID("GPU-11111111-0000-0000-0000-000000000001")
	gpuAmpere = sharing.DeviceID("GPU-22222222-0000-0000-0000-000000000002")
	gpuTuring = sharing.DeviceID("GPU-33333333-0000-0000-0000-000000000003")
)

// class is the kind of an error, for comparing.
func class(err error) string {
	names := map[string]error{
		"in use": driver.ErrInUse, "reset": driver.ErrResetRequired, "insufficient": driver.ErrInsufficient,
		"not found": driver.ErrNotFound, "unsupported": driver.ErrUnsupported, "no permission": driver.ErrNoPermission,
	}
	for name, kind := range names {
		if errors.Is(err, kind) {
			return name
		}
	}
	return fmt.Sprint(err)
}

// ctl is an administrator's hand on the machine.
func ctl(words ...string) error {
	if out, err := exec.Command(os.Getenv("FAKEGPUCTL"), words...).CombinedOutput(); err != nil {
		return fmt.Errorf("fakegpuctl %v: %s: %w", words, out, err)
	}
	return nil
}

func playPartitions(scene string, gpus *driver.NVML) error {
	switch scene {
	case "modes":
		return playModes(gpus)
	case "places":
		return playPlaces(gpus)
	case "used":
		return playUsed(gpus)
	case "prepare":
		return playPrepare(gpus)
	case "watched":
		return playWatched(gpus)
	case "crowd":
		return playCrowd(gpus)
	case "deaf":
		return playDeaf(gpus)
	}
	return fmt.Errorf("unknown scene %q", scene)
}

func playModes(gpus *driver.NVML) error {
	mode := func(id sharing.DeviceID) string {
		now, next, err := gpus.MIGMode(id)
		return fmt.Sprintf("%v/%v %s", now, next, class(err))
	}
	fmt.Println(class(gpus.SetMIGMode(gpuHopper, true)), mode(gpuHopper))
	fmt.Println(class(gpus.SetMIGMode(gpuAmpere, true)), mode(gpuAmpere))
	fmt.Println(class(gpus.SetMIGMode(gpuTuring, true)), mode(gpuTuring))
	for _, id := range []sharing.DeviceID{gpuHopper, gpuAmpere} {
		fmt.Println(gpus.Resetless(id))
	}
	if err := ctl("reset", "1"); err != nil {
		return err
	}
	fmt.Println(class(gpus.SetMIGMode(gpuAmpere, true)), mode(gpuAmpere))
	if _, err := gpus.CreateGPUInstance(gpuHopper, "1g.10gb", 0); err != nil {
		return err
	}
	fmt.Println(class(gpus.SetMIGMode(gpuHopper, false)))
	if err := ctl("reboot"); err != nil {
		return err
	}
	fmt.Println(mode(gpuHopper), mode(gpuAmpere))
	none, err := gpus.Instances(gpuHopper)
	fmt.Println(len(none), err)
	return nil
}

func playPlaces(gpus *driver.NVML) error {
	if err := gpus.SetMIGMode(gpuHopper, true); err != nil {
		return err
	}
	// Largest last: the order of creation is not the order of places.
	small, err := gpus.CreateGPUInstance(gpuHopper, "1g.10gb", 3)
	if err != nil {
		return err
	}
	large, err := gpus.CreateGPUInstance(gpuHopper, "3g.40gb", 4)
	if err != nil {
		return err
	}
	for _, p := range []struct {
		profile string
		start   int
	}{{"2g.20gb", 4}, {"3g.40gb", 1}, {"9g.90gb", 0}} {
		_, err := gpus.CreateGPUInstance(gpuHopper, p.profile, p.start)
		fmt.Println(class(err))
	}
	c, err := gpus.CreateComputeInstance(gpuHopper, large)
	if err != nil {
		return err
	}
	_, again := gpus.CreateComputeInstance(gpuHopper, large)
	fmt.Println(c.Spans, strings.HasPrefix(c.UUID, "MIG-"), class(again))
	all, err := gpus.Instances(gpuHopper)
	if err != nil {
		return err
	}
	for _, in := range all {
		fmt.Println(in.Profile, in.Start, in.Size, in.GI == small, in.GI == large, len(in.Compute))
	}
	at, err := gpus.MIGDevice(c.UUID)
	fmt.Println(at == driver.MIGDevice{Parent: gpuHopper, Minor: 0, GI: large, CI: c.CI}, err)
	fmt.Println(class(gpus.DestroyGPUInstance(gpuHopper, large)))
	fmt.Println(gpus.DestroyComputeInstance(gpuHopper, large, c.CI), class(gpus.DestroyComputeInstance(gpuHopper, large, c.CI)))
	fmt.Println(gpus.DestroyGPUInstance(gpuHopper, large), class(gpus.DestroyGPUInstance(gpuHopper, large)))
	_, gone := gpus.MIGDevice(c.UUID)
	fmt.Println(class(gone))
	return nil
}

func playUsed(gpus *driver.NVML) error {
	if err := gpus.SetMIGMode(gpuHopper, true); err != nil {
		return err
	}
	gi, err := gpus.CreateGPUInstance(gpuHopper, "2g.20gb", 2)
	if err != nil {
		return err
	}
	c, err := gpus.CreateComputeInstance(gpuHopper, gi)
	if err != nil {
		return err
	}
	client := exec.Command(os.Getenv("CUDACLIENT"), "alloc", "10", "forever")
	out, err := client.StdoutPipe()
	if err != nil {
		return err
	}
	if err := client.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return err
	}
	fmt.Print(line)
	pids, err := gpus.Processes(gpuHopper, gi)
	fmt.Println(len(pids) == 1 && pids[0] == client.Process.Pid, err)
	clients, err := gpus.Clients(gpuHopper)
	fmt.Println(len(clients) == 1 && clients[0] == driver.Client{PID: client.Process.Pid, Name: "cudaclient", GI: gi}, err)
	fmt.Println(class(gpus.DestroyComputeInstance(gpuHopper, gi, c.CI)))
	if err := client.Process.Kill(); err != nil {
		return err
	}
	_ = client.Wait()
	fmt.Println(gpus.DestroyComputeInstance(gpuHopper, gi, c.CI), gpus.DestroyGPUInstance(gpuHopper, gi))
	return nil
}

// playPrepare is the preparer over the real binding: give, reboot, give again,
// take another place.
func playPrepare(gpus *driver.NVML) error {
	root, err := os.MkdirTemp("", "mig")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(root) }()
	p := mig.New(mig.Config{Files: host.OS{}, Root: root, Driver: gpus})
	give := func(owner sharing.Owner, profile string, start, size int) (string, error) {
		in, err := p.Prepare(context.Background(), modes.Claim{
			ID: "id-" + string(owner), Owner: owner, Container: "main", Devices: []modes.ClaimedDevice{{
				Device: sharing.Device{ID: gpuHopper},
				Share: sharing.Share{Device: gpuHopper, Mode: sharing.MIG,
					Partition: sharing.Partition{Profile: profile, Start: start, Size: size}},
			}},
		})
		if err != nil {
			return "", err
		}
		return string(in.Devices[0]), nil
	}
	first, err := give("one", "3g.40gb", 4, 4)
	if err != nil {
		return err
	}
	same, err := give("one", "3g.40gb", 4, 4)
	fmt.Println(first == same, err)
	_, err = give("two", "1g.10gb", 5, 1)
	fmt.Println(err != nil && strings.Contains(err.Error(), "is held by"))
	if err := ctl("reboot"); err != nil {
		return err
	}
	after, err := give("one", "3g.40gb", 4, 4)
	fmt.Println(after != "" && after != first, err)
	if err := p.Unprepare(context.Background(), "one"); err != nil {
		return err
	}
	small, err := give("two", "1g.10gb", 5, 1)
	fmt.Println(small != "", err)
	all, err := gpus.Instances(gpuHopper)
	fmt.Println(len(all), all[0].Profile, all[0].Start, err)
	if err := p.Unprepare(context.Background(), "two"); err != nil {
		return err
	}
	err = p.Leave(context.Background(), sharing.Device{ID: gpuHopper})
	now, next, _ := gpus.MIGMode(gpuHopper)
	fmt.Println(now, next, err)
	return nil
}

func TestPartitionsThroughTheRealBinding(t *testing.T) {
	cases := map[string]struct{ scene, want string }{
		"the mode changes at once, with a reset, or never, and both of the driver's answers count": {"modes", `<nil> true/true <nil>
reset false/true <nil>
unsupported false/false unsupported
true <nil>
false <nil>
<nil> true/true <nil>
in use
false/false <nil> true/true <nil>
0 <nil>`},
		"instances are made at exact places, and destroyed from the inside out": {"places", `insufficient
not found
not found
true true insufficient
1g.10gb 3 1 true false 0
3g.40gb 4 4 false true 1
true <nil>
in use
<nil> not found
<nil> not found
not found`},
		"an instance that is used names its processes and is not destroyed": {"used", `alloc mib=10 result=CUDA_SUCCESS
true <nil>
true <nil>
in use
<nil> <nil>`},
		"a mode is switched although we watch, and nothing is lost silently": {"watched", `<nil> true/true
GPU-33333333-0000-0000-0000-000000000003 79 <nil>
0 events may have been missed
GPU-11111111-0000-0000-0000-000000000001 48 <nil>
during a slow switch: events may have been missed, <nil> false/false
in use false/true
<nil> true/true`},
		"devices that cannot be watched again are trouble, and told each time": {"deaf", `<nil>
watch the devices again after the mode of one was switched: watch device 0: nvmlDeviceRegisterEvents: Unknown Error
true <nil> <nil>`},
		"the preparer over the real binding": {"prepare", `true <nil>
true
true <nil>
true <nil>
1 1g.10gb 5 <nil>
false false <nil>`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := actOn(t, tc.scene, ages); sorted(tc.scene, got) != sorted(tc.scene, tc.want) {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// sorted orders the lines that list instances: their numbers are the driver's.
func sorted(scene, text string) string {
	lines := strings.Split(text, "\n")
	if scene == "places" && len(lines) > 5 && lines[4] > lines[5] {
		lines[4], lines[5] = lines[5], lines[4]
	}
	return strings.Join(lines, "\n")
}
