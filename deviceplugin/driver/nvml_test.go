// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// topology is four devices: two with partitions and a link, one without
// partitions, and one whose node does not exist.
const topology = `fakegpu 1
driver 580.95.05 cuda 13.0
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB cc=8.0 numa=0 mig=capable pci=0000:0f:00.0 sms=108 nvlink=1*3
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB cc=8.0 numa=0 mig=capable pci=0000:07:00.0 sms=108 nvlink=1*3
gpu model="NVIDIA A30" memory=24576MiB cc=8.0 numa=1 mig=none pci=0000:47:00.0 sms=56
`

// TestMain lets the test binary play the device plugin's part in a process whose
// dynamic linker finds the fake library, as in a container.
func TestMain(m *testing.M) {
	if scene := os.Getenv("NVML_TEST_SCENE"); scene != "" {
		if err := play(scene); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func play(scene string) error {
	gpus := driver.NewNVML(driver.LibraryLocation{})
	if scene == "missing" {
		fmt.Println(errors.Is(gpus.Open(), driver.ErrNoDriver))
		return nil
	}
	if err := gpus.Open(); err != nil {
		return err
	}
	defer func() { _ = gpus.Close() }()
	devices, err := gpus.Devices()
	if err != nil {
		return err
	}
	switch scene {
	case "facts":
		return playFacts(gpus, devices)
	case "xid":
		return playXID(gpus, devices)
	case "released":
		return playReleased(gpus, devices)
	case "quiet":
		return playQuiet(gpus, devices)
	case "load":
		return playLoad(gpus, devices)
	case "load of a partition":
		return playPartitionLoad(gpus)
	case "compute":
		return playCompute(gpus, devices)
	case "lost":
		return playLost(devices)
	case "virtual":
		return playVirtual(gpus, devices)
	case "repair":
		return playRepair(devices)
	case "reopened":
		return playReopened(gpus, devices)
	}
	return playPartitions(scene, gpus)
}

func playFacts(gpus *driver.NVML, devices []driver.Device) error {
	type seen struct {
		Version string
		Facts   []node.Facts
		Links   []string
	}
	out := seen{}
	out.Version, _ = gpus.Version()
	for _, d := range devices {
		f, err := d.Facts()
		if err != nil {
			return err
		}
		out.Facts = append(out.Facts, f)
		link, err := devices[0].Link(d)
		if d.Index() != 0 {
			out.Links = append(out.Links, fmt.Sprint(link, err))
		}
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func playXID(gpus *driver.NVML, devices []driver.Device) error {
	watch, err := gpus.Watch(devices)
	if err != nil {
		return err
	}
	if out, err := exec.Command(os.Getenv("FAKEGPUCTL"), "xid", "1", "79").CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	for range 50 {
		event, err := watch.Wait(100 * time.Millisecond)
		if errors.Is(err, driver.ErrQuiet) {
			continue
		}
		fmt.Println(event.Device, event.XID, err)
		return watch.Close()
	}
	return errors.New("no event within five seconds")
}

func playQuiet(gpus *driver.NVML, devices []driver.Device) error {
	watch, err := gpus.Watch(devices)
	if err != nil {
		return err
	}
	_, err = watch.Wait(50 * time.Millisecond)
	fmt.Println(errors.Is(err, driver.ErrQuiet), devices[0].Probe(), watch.Close())
	return nil
}

func playReleased(gpus *driver.NVML, devices []driver.Device) error {
	f, err := devices[0].Facts()
	if err != nil {
		return err
	}
	gpus.Release(true)
	if err := gpus.Close(); err != nil {
		return err
	}
	_, load := gpus.Load(string(f.UUID))
	_, mode := gpus.ComputeMode(f.UUID)
	fmt.Println(errors.Is(gpus.Open(), driver.ErrReleased), errors.Is(load, driver.ErrReleased), errors.Is(mode, driver.ErrReleased))
	gpus.Release(false)
	if err := gpus.Open(); err != nil {
		return err
	}
	_, load = gpus.Load(string(f.UUID))
	fmt.Println(load)
	return nil
}

func playCompute(gpus *driver.NVML, devices []driver.Device) error {
	f, err := devices[2].Facts()
	if err != nil {
		return err
	}
	before, err := gpus.ComputeMode(f.UUID)
	fmt.Println(before, err, gpus.SetComputeMode(f.UUID, driver.ExclusiveProcess))
	after, err := gpus.ComputeMode(f.UUID)
	fmt.Println(after, err, gpus.SetComputeMode("GPU-none", driver.DefaultComputeMode) != nil)
	return nil
}

// playReopened asks about a device while somebody else closes and opens the driver,
// as whoever watches does when another device is lost.
func playReopened(gpus *driver.NVML, devices []driver.Device) error {
	f, err := devices[0].Facts()
	if err != nil {
		return err
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var failed error
		for {
			select {
			case <-stop:
				ended <- failed
				return
			default:
				failed = errors.Join(failed, gpus.Close())
				time.Sleep(time.Millisecond)
				failed = errors.Join(failed, gpus.Open())
			}
		}
	}()
	refused := 0
	for range 500 {
		_, _, migErr := gpus.MIGMode(f.UUID)
		_, modeErr := gpus.ComputeMode(f.UUID)
		if migErr != nil || modeErr != nil {
			refused++
		}
	}
	close(stop)
	fmt.Println(refused, <-ended)
	if err := gpus.Close(); err != nil {
		return err
	}
	_, _, err = gpus.MIGMode(f.UUID)
	_, listErr := gpus.Devices()
	fmt.Println(err, errors.Is(listErr, driver.ErrClosed))
	return nil
}

func playLost(devices []driver.Device) error {
	ctl := os.Getenv("FAKEGPUCTL")
	if out, err := exec.Command(ctl, "lose", "2").CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	fmt.Println(devices[1].Probe() == nil, errors.Is(devices[2].Probe(), driver.ErrLost))
	if out, err := exec.Command(ctl, "restore", "2").CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	fmt.Println(devices[2].Probe())
	return nil
}

// playRepair prints what a probe says of a device that answers while it waits for a repair.
func playRepair(devices []driver.Device) error {
	for _, words := range []string{
		"recovery 2 reset", "recovery 2 reboot", "recovery 2 drain-p2p", "recovery 2 drain-and-reset", "recovery 2 none",
		"remap 2 pending", "remap 2 failed", "recovery 2 reset", "reset 2", "remap 2 none",
	} {
		if out, err := exec.Command(os.Getenv("FAKEGPUCTL"), strings.Fields(words)...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w", out, err)
		}
		err := devices[2].Probe()
		_, unread := devices[2].Facts()
		fmt.Println(words, errors.Is(err, driver.ErrRepair), err, unread, devices[1].Probe())
	}
	return nil
}

// act plays a scene in a process of its own on a fresh fake machine.
func act(t *testing.T, scene string) string {
	t.Helper()
	return actOn(t, scene, topology)
}

// actOn does so on another machine.
func actOn(t *testing.T, scene, topology string) string {
	t.Helper()
	build, err := filepath.Abs("../../e2e/fakegpu/build")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(build, "libnvidia-ml.so.1")); err != nil {
		t.Skip("the fake driver is not built: make -C e2e/fakegpu")
	}
	state, dev := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(state, "topology"), []byte(topology), 0o600); err != nil {
		t.Fatal(err)
	}
	for minor := range strings.Count(topology, "\ngpu ") {
		node := filepath.Join(dev, fmt.Sprintf("nvidia%d", minor))
		if err := syscall.Mknod(node, syscall.S_IFCHR|0o666, 195<<8|minor); err != nil {
			t.Skipf("device nodes cannot be made here: %v", err)
		}
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "NVML_TEST_SCENE="+scene, "LD_LIBRARY_PATH="+build, "FAKEGPU_DIR="+state,
		"FAKEGPU_DEV="+dev, "FAKEGPUCTL="+filepath.Join(build, "fakegpuctl"), "CUDACLIENT="+filepath.Join(build, "cudaclient"))
	if scene == "missing" {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH=/nonexistent")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("scene %s: %v\n%s", scene, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestTheRealBindingReadsTheDriver(t *testing.T) {
	var seen struct {
		Version string
		Facts   []node.Facts
		Links   []string
	}
	if err := json.Unmarshal([]byte(act(t, "facts")), &seen); err != nil {
		t.Fatal(err)
	}
	if seen.Version != "580.95.05" || len(seen.Facts) != 3 {
		t.Fatalf("version %q with %d devices, want 580.95.05 with 3", seen.Version, len(seen.Facts))
	}
	first, third := seen.Facts[0], seen.Facts[2]
	if first.PCI != "0000:0f:00.0" || first.Memory != sharing.MiBs(81920) || first.NUMA != 0 || first.Model != "NVIDIA A100-SXM4-80GB" {
		t.Errorf("the first device is %+v", first)
	}
	if !first.MIG.Capable || first.MIG.Enabled || first.MIG.Slices != 8 {
		t.Errorf("its partitions are %+v, want 8 slices, possible and off", first.MIG)
	}
	for _, p := range first.MIG.Profiles {
		if p.Name == "3g.40gb" && (fmt.Sprint(p.Starts) != "[0 4]" || p.Size != 4 || p.Compute != 3) {
			t.Errorf("profile 3g.40gb is %+v", p)
		}
	}
	if len(first.MIG.Profiles) < 5 {
		t.Errorf("only %d profiles", len(first.MIG.Profiles))
	}
	if first.Compute != 8 || first.CUDA != 13000 {
		t.Errorf("its generation is %d under CUDA %d", first.Compute, first.CUDA)
	}
	if third.MIG.Capable || third.NUMA != 1 || third.Minor != 2 {
		t.Errorf("the third device is %+v", third)
	}
	if len(seen.Links) != 2 || seen.Links[0] != "{ nvlink 3} <nil>" || seen.Links[1] != "{ sys 0} <nil>" {
		t.Errorf("the links of the first device are %v, want three NVLinks to the second, none to the third", seen.Links)
	}
}

func TestNothingUsesAReleasedDriver(t *testing.T) {
	if got := act(t, "released"); got != "true true true\n<nil>" {
		t.Errorf("a released driver answers %q", got)
	}
}

func TestAQuietMachineHasNoEvents(t *testing.T) {
	if got := act(t, "quiet"); got != "true <nil> <nil>" {
		t.Errorf("waiting answers %q", got)
	}
}

func TestTheRealBindingDeliversCriticalErrors(t *testing.T) {
	if got := act(t, "xid"); !strings.HasPrefix(got, "GPU-") || !strings.HasSuffix(got, " 79 <nil>") {
		t.Errorf("the event is %q", got)
	}
}

func TestTheRealBindingTellsALostDeviceFromOthers(t *testing.T) {
	if got := act(t, "lost"); got != "true true\n<nil>" {
		t.Errorf("probes answer %q, want that only the lost device is lost and comes back", got)
	}
}

func TestTheRealBindingTellsADeviceThatWaitsForItsRepair(t *testing.T) {
	want := `recovery 2 reset true the device must be repaired, says the driver: end what runs on it, then nvidia-smi --gpu-reset <nil> <nil>
recovery 2 reboot true the device must be repaired, says the driver: reboot the node <nil> <nil>
recovery 2 drain-p2p true the device must be repaired, says the driver: end what reaches other devices from it (peer to peer) <nil> <nil>
recovery 2 drain-and-reset true the device must be repaired, says the driver: let what runs on it end, then nvidia-smi --gpu-reset <nil> <nil>
recovery 2 none false <nil> <nil> <nil>
remap 2 pending false <nil> <nil> <nil>
remap 2 failed true the device must be repaired: rows of its memory could not be remapped; replace it <nil> <nil>
recovery 2 reset true the device must be repaired, says the driver: end what runs on it, then nvidia-smi --gpu-reset <nil> <nil>
reset 2 true the device must be repaired: rows of its memory could not be remapped; replace it <nil> <nil>
remap 2 none false <nil> <nil> <nil>`
	if got := act(t, "repair"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestADeviceAnswersWhileSomebodyElseClosesAndOpensTheDriver(t *testing.T) {
	if got := act(t, "reopened"); got != "0 <nil>\n<nil> true" {
		t.Errorf("the answers are %q, want that no call is refused", got)
	}
}

func TestTheRealBindingSetsComputeModes(t *testing.T) {
	if got := act(t, "compute"); got != "0 <nil> <nil>\n3 <nil> true" {
		t.Errorf("the answers are %q", got)
	}
}

func TestAMissingLibraryIsAnErrorAndNoCrash(t *testing.T) {
	if got := act(t, "missing"); got != "true" {
		t.Errorf("Open says %q, want driver.ErrNoDriver", got)
	}
}
