// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// watching watches all devices.
func watching(gpus *driver.NVML) (driver.Watch, error) {
	devices, err := gpus.Devices()
	if err != nil {
		return nil, err
	}
	return gpus.Watch(devices)
}

// next is the next that a watch says, but that nothing happened.
func next(w driver.Watch) (driver.Event, error) {
	for range 600 {
		e, err := w.Wait(100 * time.Millisecond)
		if !errors.Is(err, driver.ErrQuiet) {
			return e, err
		}
	}
	return driver.Event{}, errors.New("nothing for a minute")
}

// tell prints the next that a watch says.
func tell(w driver.Watch) {
	e, err := next(w)
	if e.Device != "" {
		fmt.Print(e.Device, " ")
	}
	fmt.Println(e.XID, err)
}

// playWatched switches a mode while all devices are watched: in a driver that refuses it while
// anybody has the device in an event set.
func playWatched(gpus *driver.NVML) error {
	watch, err := watching(gpus)
	if err != nil {
		return err
	}
	defer func() { _ = watch.Close() }()
	mode := func(err error) string {
		now, pending, _ := gpus.MIGMode(gpuHopper)
		return fmt.Sprintf("%s %v/%v", class(err), now, pending)
	}
	if err := ctl("xid", "2", "79"); err != nil { // nobody has asked yet
		return err
	}
	fmt.Println(mode(gpus.SetMIGMode(gpuHopper, true)))
	tell(watch)
	tell(watch)
	if err := ctl("xid", "0", "48"); err != nil {
		return err
	}
	tell(watch)
	if err := ctl("slow", "nvmlDeviceSetMigMode", "300"); err != nil {
		return err
	}
	switched := make(chan error)
	go func() { switched <- gpus.SetMIGMode(gpuHopper, false) }()
	_, told := next(watch)
	fmt.Println("during a slow switch:", fmt.Sprint(told)+",", mode(<-switched))
	return playMonitored(gpus, mode)
}

// playMonitored tries to switch a mode while somebody else watches the device.
func playMonitored(gpus *driver.NVML, mode func(error) string) error {
	service := exec.Command(os.Getenv("FAKEGPUCTL"), "watch", "0")
	out, err := service.StdoutPipe()
	if err != nil {
		return err
	}
	if err := service.Start(); err != nil {
		return err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return err
	}
	fmt.Println(mode(gpus.SetMIGMode(gpuHopper, true)))
	if err := service.Process.Kill(); err != nil {
		return err
	}
	_ = service.Wait()
	fmt.Println(mode(gpus.SetMIGMode(gpuHopper, true)))
	return nil
}

// playDeaf switches a mode in a driver that lets nobody watch afterwards.
func playDeaf(gpus *driver.NVML) error {
	devices, err := gpus.Devices()
	if err != nil {
		return err
	}
	watch, err := gpus.Watch(devices[:1])
	if err != nil {
		return err
	}
	if err := ctl("fail", "nvmlDeviceRegisterEvents", "always", "999"); err != nil {
		return err
	}
	fmt.Println(gpus.SetMIGMode(sharing.DeviceID(gpuHopper), true))
	_, first := watch.Wait(time.Minute)
	_, second := watch.Wait(time.Minute)
	fmt.Println(first)
	fmt.Println(fmt.Sprint(first) == fmt.Sprint(second), watch.Close(), ctl("mend"))
	return nil
}
