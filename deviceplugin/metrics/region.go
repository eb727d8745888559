// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"deviceshare/sharing"
)

// The layout of the file, as hami-core/include/hamicore_abi.h has it: HAMi-core's
// region 1.2, and behind it, on a page of its own, what libvgpu.so adds.
const (
	magic        = 19920718
	maxDevices   = 16
	maxProcesses = 1024

	uuidsAt, uuidSize       = 64, 96
	limitsAt                = 1600
	processesAt             = 1856
	processSize             = 1960
	processUsedAt           = 8 // per device: context, module, data, offset, total, 3 spare
	processUsedSize         = 64
	processStatusAt         = 1928
	processStatusEnd        = processStatusAt + 4
	processCountAt          = 2008896
	extensionAt             = 2011136
	extensionMagic          = 0x3154584555504756 // "VGPUEXT1"
	extensionOldest         = 2                  // of the versions in which the slots and the GPU time lie so
	extensionVersion        = 3
	slotsAt                 = extensionAt + 272
	slotSize                = 464
	slotShownAt             = 144 // imported, then overflow, of each device
	pacesAt                 = slotsAt + maxProcesses*slotSize
	paceSize                = 32
	paceRefilledAt          = 8
	paceSpentAt             = 16
	regionSize              = pacesAt + maxDevices*paceSize // what is read of it
	slotLockAt        int64 = 1 << 41                       // the byte that the owner of slot 0 has locked
)

// Region is what the processes of one container say they use.
type Region struct {
	// Devices are those that have a UUID in the file, in its order.
	Devices []DeviceUsage
}

// DeviceUsage is what all living processes of the container together say of one device.
type DeviceUsage struct {
	ID sharing.DeviceID
	// Limit is what the file says of it; 0 is none. What is enforced stands in the
	// limits file, which the container cannot write.
	Limit sharing.Bytes
	// Used is what counts against the limit. It includes Overflow, which lies in the
	// memory of the host because the card was full.
	Used, Overflow sharing.Bytes
	// Uncounted is the memory of contexts and code where they are not charged.
	Uncounted sharing.Bytes
	// Imported is memory of other processes that is open here. Its makers have it in
	// their Used.
	Imported sharing.Bytes
	// Processes is how many have memory there, or a context.
	Processes int
	// Busy is the GPU time spent. It is measured only where compute is limited.
	Busy     time.Duration
	Measured bool
	// Compute is the part of the device's time, 0 to 1, that its processes had in the last
	// moments by the driver, where IsComputeKnown says that it tells.
	Compute        float64
	IsComputeKnown bool
}

// DecodeRegion reads a region. alive says whether the process that has a slot still
// lives; an error of it ends the reading. The file is of the container's making, and
// may change while it is read: whatever it holds, the result is a value or an
// error. An extension of a version that this program does not know is passed over:
// then there is no Overflow, Imported and Busy.
func DecodeRegion(file io.ReaderAt, alive func(slot int) (bool, error)) (Region, error) {
	r := reader{file: file, alive: alive}
	if err := r.readHeader(); err != nil {
		return Region{}, fmt.Errorf("read a region: %w", err)
	}
	for slot := range r.slots {
		if err := r.addProcess(slot); err != nil {
			return Region{}, fmt.Errorf("read a region: slot %d: %w", slot, err)
		}
	}
	if err := r.readGPUTimes(); err != nil {
		return Region{}, fmt.Errorf("read a region: %w", err)
	}
	var out Region
	for i := range r.devices {
		if r.devices[i].ID != "" {
			r.devices[i].Processes = len(r.pids[i])
			out.Devices = append(out.Devices, r.devices[i])
		}
	}
	return out, nil
}

// reader is one reading.
type reader struct {
	file     io.ReaderAt
	alive    func(slot int) (bool, error)
	slots    int  // as many may be in use
	extended bool // the extension is one we know
	devices  [maxDevices]DeviceUsage
	pids     [maxDevices]map[int32]bool
	buffer   [processStatusEnd]byte // the largest piece
}

// readAt reads exactly n bytes; the slice is good until the next call.
func (r *reader) readAt(offset int64, n int) ([]byte, error) {
	b := r.buffer[:n]
	if got, err := r.file.ReadAt(b, offset); got < n {
		if err == nil || err == io.EOF { //nolint:errorlint // a ReaderAt returns io.EOF itself
			return nil, fmt.Errorf("it ends within the %d bytes at %d", n, offset)
		}
		return nil, fmt.Errorf("read %d bytes at %d: %w", n, offset, err)
	}
	return b, nil
}

// readHeader reads what is not of a process.
func (r *reader) readHeader() error {
	b, err := r.readAt(0, processesAt)
	if err != nil {
		return err
	}
	if m, major := decodeInt32(b), decodeInt32(b[4:]); m != magic || major != 1 {
		return fmt.Errorf("it begins with %d, %d, want %d, 1: it is none, or is being made", m, major, magic)
	}
	for i := range r.devices {
		uuid, _, _ := bytes.Cut(b[uuidsAt+i*uuidSize:uuidsAt+(i+1)*uuidSize], []byte{0})
		r.devices[i].ID = sharing.DeviceID(uuid)
		if r.devices[i].Limit, err = decodeAmount(b[limitsAt+8*i:]); err != nil {
			return fmt.Errorf("limit of device %d: %w", i, err)
		}
	}
	if b, err = r.readAt(processCountAt, 4); err != nil {
		return err
	}
	n := decodeInt32(b)
	if n < 0 || n > maxProcesses {
		return fmt.Errorf("it says that %d slots are used, of %d", n, maxProcesses)
	}
	r.slots = int(n)
	if b, err = r.readAt(extensionAt, 12); err != nil {
		return err
	}
	if m := binary.LittleEndian.Uint64(b); m != extensionMagic {
		return fmt.Errorf("its extension begins with %#x: it has none, or is being made", m)
	}
	version := decodeInt32(b[8:])
	r.extended = version >= extensionOldest && version <= extensionVersion
	return nil
}

func (r *reader) addProcess(slot int) error {
	b, err := r.readAt(processesAt+int64(slot)*processSize, processStatusEnd)
	if err != nil || decodeInt32(b[processStatusAt:]) == 0 {
		return err
	}
	if alive, err := r.alive(slot); err != nil || !alive {
		return err
	}
	pid := decodeInt32(b)
	for i := range r.devices {
		d, used := &r.devices[i], b[processUsedAt+i*processUsedSize:]
		var parts [5]sharing.Bytes
		for k := range parts {
			if parts[k], err = decodeAmount(used[8*k:]); err != nil {
				return fmt.Errorf("device %d: %w", i, err)
			}
		}
		context, module, data, total := parts[0], parts[1], parts[2], parts[4]
		d.Used = d.Used.Plus(total)
		d.Uncounted = d.Uncounted.Plus(context.Plus(module).Plus(data).Less(total))
		if total > 0 || context > 0 {
			if r.pids[i] == nil {
				r.pids[i] = map[int32]bool{}
			}
			r.pids[i][pid] = true
		}
	}
	return r.addImportsAndOverflow(slot)
}

// addImportsAndOverflow adds what a slot tells and does not count.
func (r *reader) addImportsAndOverflow(slot int) error {
	if !r.extended {
		return nil
	}
	b, err := r.readAt(slotsAt+int64(slot)*slotSize+slotShownAt, 2*maxDevices*8)
	if err != nil {
		return err
	}
	for i := range r.devices {
		imported, err := decodeAmount(b[8*i:])
		if err != nil {
			return fmt.Errorf("imports of device %d: %w", i, err)
		}
		overflow, err := decodeAmount(b[8*(maxDevices+i):])
		if err != nil {
			return fmt.Errorf("overflow of device %d: %w", i, err)
		}
		d := &r.devices[i]
		d.Imported, d.Overflow = d.Imported.Plus(imported), d.Overflow.Plus(overflow)
	}
	return nil
}

func (r *reader) readGPUTimes() error {
	if !r.extended {
		return nil
	}
	b, err := r.readAt(pacesAt, maxDevices*paceSize)
	if err != nil {
		return err
	}
	for i := range r.devices {
		pace := b[i*paceSize:]
		spent, err := decodeAmount(pace[paceSpentAt:])
		if err != nil {
			return fmt.Errorf("GPU time of device %d: %w", i, err)
		}
		r.devices[i].Busy = time.Duration(spent)
		r.devices[i].Measured = spent > 0 || binary.LittleEndian.Uint64(pace[paceRefilledAt:]) != 0
	}
	return nil
}

func decodeInt32(b []byte) int32 { return int32(binary.LittleEndian.Uint32(b)) } //nolint:gosec // two's complement is meant

// decodeAmount is a number that cannot be one of ours when it does not fit.
func decodeAmount(b []byte) (sharing.Bytes, error) {
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(sharing.MaxBytes) {
		return 0, fmt.Errorf("it says %d", n)
	}
	return sharing.Bytes(n), nil
}
