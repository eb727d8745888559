// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"deviceshare/sharing"
)

// NVML is the driver on this machine.
type NVML struct {
	place LibraryLocation

	mu   sync.Mutex
	open bool
	// users is held to change how many use the library: the binding reads that
	// number, when it is asked for a symbol, without a lock of its own.
	users sync.RWMutex
	using int // of those, the ones that initLibrary has counted
	// released says that nobody may begin to use it.
	released bool
	// path is where the library in use is. Both change only while nobody uses it.
	path string
	lib  atomic.Pointer[nvml.Interface]

	watches watches
}

// NewNVML returns the driver whose library is at the place. Two of different places do not work in
// one process.
func NewNVML(place LibraryLocation) *NVML {
	r := &NVML{place: place}
	r.useLibrary(libraryName)
	return r
}

func (r *NVML) useLibrary(path string) {
	lib := nvml.New(nvml.WithLibraryPath(path))
	r.path = path
	r.lib.Store(&lib)
}

// Library is the underlying binding, for libraries that want one. It is another one after the
// driver was replaced.
func (r *NVML) Library() nvml.Interface { return *r.lib.Load() }

// Open implements Driver.
func (r *NVML) Open() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open {
		return nil
	}
	err := r.initLibrary()
	r.open = err == nil
	return err
}

// initLibrary uses the library, in addition to whoever uses it already: it counts them,
// and stays until each has shut it down.
func (r *NVML) initLibrary() error {
	r.users.Lock()
	defer r.users.Unlock()
	if r.released {
		return ErrReleased
	}
	if r.using == 0 {
		path, err := r.place.findLibrary()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNoDriver, err)
		}
		if path != r.path {
			r.useLibrary(path)
		}
	}
	switch ret := r.Library().Init(); ret {
	case nvml.SUCCESS:
		r.using++
		return nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("%w: %s could not be loaded; is the driver installed and visible here?", ErrNoDriver, r.path)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return fmt.Errorf("%w: the kernel module is not loaded", ErrNoDriver)
	default:
		return fmt.Errorf("%w: nvmlInit: %w", ErrNoDriver, nvmlFailure("nvmlInit", ret))
	}
}

// Close implements Driver.
func (r *NVML) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return nil
	}
	r.open = false
	return r.shutdownLibrary()
}

// Release implements Driver. Calls that are under way end as they would.
func (r *NVML) Release(is bool) {
	r.users.Lock()
	defer r.users.Unlock()
	r.released = is
}

func (r *NVML) shutdownLibrary() error {
	r.users.Lock()
	defer r.users.Unlock()
	r.using--
	return nvmlFailure("nvmlShutdown", r.Library().Shutdown())
}

// Version implements Driver.
func (r *NVML) Version() (string, error) {
	if err := r.requireOpen(); err != nil {
		return "", err
	}
	v, ret := r.Library().SystemGetDriverVersion()
	return v, nvmlFailure("nvmlSystemGetDriverVersion", ret)
}

// Devices implements Driver.
func (r *NVML) Devices() ([]Device, error) {
	if err := r.requireOpen(); err != nil {
		return nil, err
	}
	n, ret := r.Library().DeviceGetCount()
	if err := nvmlFailure("nvmlDeviceGetCount", ret); err != nil {
		return nil, err
	}
	devices := make([]Device, 0, n)
	for i := range n {
		handle, ret := r.Library().DeviceGetHandleByIndex(i)
		devices = append(devices, &nvmlDevice{
			driver: r, index: i, handle: handle,
			broken: nvmlFailure(fmt.Sprintf("nvmlDeviceGetHandleByIndex(%d)", i), ret),
		})
	}
	return devices, nil
}

func (r *NVML) requireOpen() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return ErrClosed
	}
	return nil
}

// hasSymbol reports whether the library exports a function. A call to a missing one
// would end the process, and drivers of different ages differ.
func (r *NVML) hasSymbol(symbol string) bool {
	r.users.RLock()
	defer r.users.RUnlock()
	return r.Library().Extensions().LookupSymbol(symbol) == nil
}

// acquireDevice returns the handle of a device, and makes sure that the library has what is about
// to be called. Until done is called, a Close elsewhere does not take the library away:
// whoever watches the devices closes it at any time, and while a device is lost every few
// seconds. Whether it is open there says nothing about this device.
func (r *NVML) acquireDevice(id sharing.DeviceID, failure func(call string, ret nvml.Return) error, symbols ...string) (handle nvml.Device, done func(), err error) {
	if err := r.initLibrary(); err != nil {
		return nil, nil, err
	}
	done = func() { _ = r.shutdownLibrary() }
	for _, symbol := range symbols {
		if !r.hasSymbol(symbol) {
			done()
			return nil, nil, fmt.Errorf("this driver has no %s: %w", symbol, ErrUnsupported)
		}
	}
	handle, ret := r.Library().DeviceGetHandleByUUID(string(id))
	if err := failure("nvmlDeviceGetHandleByUUID", ret); err != nil {
		done()
		return nil, nil, fmt.Errorf("find device %s: %w", id, err)
	}
	return handle, done, nil
}

// nvmlFailure turns a return code into an error; nil for success.
func nvmlFailure(call string, ret nvml.Return) error {
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED:
		return fmt.Errorf("%s: %w (%s)", call, ErrLost, nvml.ErrorString(ret))
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_ARGUMENT_VERSION_MISMATCH:
		return fmt.Errorf("%s: %w", call, ErrUnsupported)
	case nvml.ERROR_NO_PERMISSION:
		return fmt.Errorf("%s: %w", call, ErrNoPermission)
	case nvml.ERROR_IN_USE:
		return fmt.Errorf("%s: %w", call, ErrInUse)
	case nvml.ERROR_INSUFFICIENT_RESOURCES:
		return fmt.Errorf("%s: %w", call, ErrInsufficient)
	case nvml.ERROR_NOT_FOUND:
		return fmt.Errorf("%s: %w", call, ErrNotFound)
	case nvml.ERROR_TIMEOUT:
		return ErrQuiet
	case nvml.ERROR_UNINITIALIZED:
		return fmt.Errorf("%s: %w", call, ErrClosed)
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return errors.New(call + ": libnvidia-ml.so.1 not found")
	}
	return fmt.Errorf("%s: %s", call, nvml.ErrorString(ret))
}
