// SPDX-License-Identifier: Apache-2.0

// Package driver defines, as interfaces, what the device plugin needs of the NVIDIA driver.
// NVML implements them with libnvidia-ml. Package drivertest has a stateful stand-in that
// refuses what hardware refuses.
package driver

import (
	"errors"
	"time"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// Errors that callers tell apart. Anything else is broken in a way that only the
// log can explain.
var (
	// ErrNoDriver: the library cannot be loaded or finds no kernel driver.
	ErrNoDriver = errors.New("the NVIDIA driver is not available")
	// ErrClosed: the driver was not opened, or was closed.
	ErrClosed = errors.New("the NVIDIA driver is not open")
	// ErrReleased: this process was told not to use the driver.
	ErrReleased = errors.New("the NVIDIA driver was released for others")
	// ErrLost: the device fell off the bus or is otherwise out of reach.
	ErrLost = errors.New("the device is lost")
	// ErrRepair: the device answers, and nobody should use it before it was repaired.
	ErrRepair = errors.New("the device must be repaired")
	// ErrUnsupported: the device or the driver cannot do this, or not in the mode the
	// device is in.
	ErrUnsupported = errors.New("not supported")
	// ErrNoPermission: the driver lets somebody else do it.
	ErrNoPermission = errors.New("no permission")
	// ErrInUse: something runs there, or depends on it.
	ErrInUse = errors.New("in use")
	// ErrResetRequired: the change takes effect when the device is reset.
	ErrResetRequired = errors.New("the device must be reset")
	// ErrInsufficient: the place is taken, or no more of its kind may exist.
	ErrInsufficient = errors.New("insufficient resources")
	// ErrNotFound: there is no such device, instance or profile.
	ErrNotFound = errors.New("not found")
	// ErrMissed: for a while nobody listened; what happened then must be asked of the devices.
	ErrMissed = errors.New("events may have been missed")
	// ErrQuiet: nothing happened while waiting.
	ErrQuiet = errors.New("no event")
)

// Driver is one driver on one node. Implementations are safe for concurrent use.
// Open and Close are for who watches the devices: the calls that name a device by
// its UUID work at any time at which the driver is there, also between a Close and
// the next Open.
type Driver interface {
	// Open loads the driver. It may be called again after an error or a Close.
	Open() error
	// Close releases the driver.
	Close() error
	// Release has every later call that would use the driver fail with ErrReleased, or lets them
	// use it again.
	Release(is bool)
	// Version is the version of the driver, "580.95.05".
	Version() (string, error)
	// Devices lists every device in index order. A device that is lost is in the
	// list; its methods answer ErrLost.
	Devices() ([]Device, error)
	// Watch starts to collect the critical errors of devices; ErrLost when one of
	// them is lost.
	Watch(devices []Device) (Watch, error)
	// MIGDevice finds a MIG device by its UUID, "MIG-...".
	MIGDevice(uuid string) (MIGDevice, error)
	// MemoryByProcess lists the processes that use a device, each once, by PID;
	// ErrUnsupported when the driver does not say how much memory they have.
	MemoryByProcess(id sharing.DeviceID) ([]Process, error)
	// BusyByProcess says for which part of the last moments, 0 to 1, each process has kept a
	// device busy, by PID. Who has not within the given time is left out. ErrUnsupported when the
	// driver does not tell, as of a device in mode mig.
	BusyByProcess(id sharing.DeviceID, within time.Duration) (map[int]float64, error)
	// Load says how much of a device, or of a MIG device, is in use. It takes the UUID of either.
	Load(id string) (Load, error)
	Partitions
	ComputeModes
}

// Device is a handle of one device. It is valid until the driver is closed.
type Device interface {
	// Index is the driver's index.
	Index() int
	// Facts reads everything that does not change while the device works.
	// Index and Links are left to Scan.
	Facts() (node.Facts, error)
	// Probe asks the device for a sign of life, and whether it may be used: nil, ErrLost, ErrRepair
	// or another error.
	Probe() error
	// Licence reads the licence of a vGPU. It is ErrUnsupported for other devices, and where the
	// driver does not say.
	Licence() (node.Licence, error)
	// Link says how this device reaches another one: "nvlink" and by how many of them, "pix",
	// "pxb", "phb", "node" or "sys". The peer is left to Scan.
	Link(to Device) (sharing.Link, error)
}

// Event is a critical error a device reported.
type Event struct {
	// Device is the UUID, "" when the driver could not say which device it is.
	Device sharing.DeviceID
	XID    uint64
}

// Watch delivers events. Only one goroutine may wait at a time.
type Watch interface {
	// Wait blocks for at most this long: an event, ErrQuiet, ErrLost when a
	// device vanished and nothing says which, ErrMissed once after each time in which
	// the watch was closed for a change of a mode, or another error.
	Wait(atMost time.Duration) (Event, error)
	Close() error
}
