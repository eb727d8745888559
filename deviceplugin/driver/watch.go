// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"deviceshare/sharing"
)

// nvmlWatch is an NVML event set. known maps handles to UUIDs because a lost
// device no longer answers for its own.
type nvmlWatch struct {
	set   nvml.EventSet
	known map[nvml.Device]sharing.DeviceID
}

// Watch implements Driver. Devices that cannot report errors are left out: the
// periodic probe is all there is for them.
func (r *NVML) Watch(devices []Device) (Watch, error) {
	if err := r.usable(); err != nil {
		return nil, err
	}
	set, ret := r.Library().EventSetCreate()
	if err := failure("nvmlEventSetCreate", ret); err != nil {
		return nil, err
	}
	w := &nvmlWatch{set: set, known: map[nvml.Device]sharing.DeviceID{}}
	var failed []error
	for _, device := range devices {
		d, ok := device.(*nvmlDevice)
		if !ok || d.broken != nil {
			continue
		}
		if err := w.add(d); err != nil && !errors.Is(err, ErrUnsupported) {
			failed = append(failed, fmt.Errorf("watch device %d: %w", d.index, err))
		}
	}
	if len(failed) > 0 {
		_ = set.Free()
		return nil, errors.Join(failed...)
	}
	return w, nil
}

func (w *nvmlWatch) add(d *nvmlDevice) error {
	supported, ret := d.handle.GetSupportedEventTypes()
	if err := failure("nvmlDeviceGetSupportedEventTypes", ret); err != nil {
		return err
	}
	wanted := supported & nvml.EventTypeXidCriticalError
	if wanted == 0 {
		return ErrUnsupported
	}
	uuid, ret := d.handle.GetUUID()
	if err := failure("nvmlDeviceGetUUID", ret); err != nil {
		return err
	}
	if err := failure("nvmlDeviceRegisterEvents", d.handle.RegisterEvents(wanted, w.set)); err != nil {
		return err
	}
	w.known[d.handle] = sharing.DeviceID(uuid)
	return nil
}

// Wait implements Watch.
func (w *nvmlWatch) Wait(atMost time.Duration) (Event, error) {
	data, ret := w.set.Wait(uint32(max(atMost.Milliseconds(), 1)))
	if err := failure("nvmlEventSetWait", ret); err != nil {
		return Event{}, err
	}
	if data.EventType != nvml.EventTypeXidCriticalError {
		return Event{}, ErrQuiet
	}
	e := Event{XID: data.EventData, Device: w.known[data.Device]}
	if e.Device == "" {
		if uuid, ret := data.Device.GetUUID(); ret == nvml.SUCCESS {
			e.Device = sharing.DeviceID(uuid)
		}
	}
	return e, nil
}

// Close implements Watch.
func (w *nvmlWatch) Close() error { return failure("nvmlEventSetFree", w.set.Free()) }
