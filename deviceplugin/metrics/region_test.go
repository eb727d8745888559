// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"deviceshare/sharing"
)

// image is a region as a file. Two devices are named; slot 1 is a hole.
type image []byte

// put writes numbers of 8 bytes.
func (m image) put(at int, numbers ...uint64) {
	for i, n := range numbers {
		binary.LittleEndian.PutUint64(m[at+8*i:], n)
	}
}

func (m image) put32(at int, number int32) { binary.LittleEndian.PutUint32(m[at:], uint32(number)) }

// process fills a slot.
func (m image) process(slot int, pid int32, device int, context, module, data, total uint64) {
	at := processesAt + slot*processSize
	m.put32(at, pid)
	m.put32(at+processStatusAt, 1)
	m.put(at+processUsedAt+device*processUsedSize, context, module, data, 0, total)
}

// show fills what a slot tells.
func (m image) show(slot, device int, imported, overflow uint64) {
	at := slotsAt + slot*slotSize + slotShownAt
	m.put(at+8*device, imported)
	m.put(at+8*(maxDevices+device), overflow)
}

func newImage() image {
	m := make(image, regionSize)
	m.put32(0, magic)
	m.put32(4, 1)
	m.put32(8, 2)
	copy(m[uuidsAt:], "GPU-a")
	copy(m[uuidsAt+uuidSize:], "GPU-b")
	m.put(limitsAt, 100)
	m.put32(processCountAt, 3)
	m.put(extensionAt, extensionMagic)
	m.put32(extensionAt+8, extensionVersion)
	m.process(0, 7, 0, 10, 5, 15, 30)
	m.process(2, 8, 0, 0, 0, 20, 20)
	m.process(2, 8, 1, 4, 2, 6, 6) // context and code are not charged
	m.show(2, 0, 3, 9)
	m.put(pacesAt+paceRefilledAt, 1, 1500)
	return m
}

func everybody(int) (bool, error) { return true, nil }

func TestARegionIsTheSumOfItsLivingProcesses(t *testing.T) {
	a := DeviceUsage{ID: "GPU-a", Limit: 100, Used: 50, Imported: 3, Overflow: 9, Processes: 2, Busy: 1500, Measured: true}
	b := DeviceUsage{ID: "GPU-b", Used: 6, Uncounted: 6, Processes: 1}
	cases := map[string]struct {
		change func(m image)
		alive  func(slot int) (bool, error)
		want   []DeviceUsage
	}{
		"everybody lives": {func(image) {}, everybody, []DeviceUsage{a, b}},
		"a dead process has nothing, and the GPU time stays": {func(image) {}, func(slot int) (bool, error) { return slot != 2, nil }, []DeviceUsage{
			{ID: "GPU-a", Limit: 100, Used: 30, Processes: 1, Busy: 1500, Measured: true}, {ID: "GPU-b"},
		}},
		"a hole has nothing":                    {func(m image) { m.put(processesAt+processSize+processUsedAt+32, 1000) }, everybody, []DeviceUsage{a, b}},
		"a slot beyond the highest has nothing": {func(m image) { m.process(5, 9, 0, 0, 0, 1000, 1000) }, everybody, []DeviceUsage{a, b}},
		"a process with two copies of the library is one": {func(m image) { m.process(2, 7, 0, 0, 0, 20, 20) }, everybody, []DeviceUsage{
			{ID: "GPU-a", Limit: 100, Used: 50, Imported: 3, Overflow: 9, Processes: 1, Busy: 1500, Measured: true}, b,
		}},
		"a process with a context alone is one": {func(m image) {
			m.put32(processCountAt, 4)
			m.process(3, 9, 0, 2, 0, 0, 0)
		}, everybody, []DeviceUsage{
			{ID: "GPU-a", Limit: 100, Used: 50, Uncounted: 2, Imported: 3, Overflow: 9, Processes: 3, Busy: 1500, Measured: true}, b,
		}},
		"an extension of the version before is read": {func(m image) { m.put32(extensionAt+8, extensionOldest) }, everybody, []DeviceUsage{a, b}},
		"an extension of a later version is passed over": {func(m image) { m.put32(extensionAt+8, extensionVersion+1) }, everybody, []DeviceUsage{
			{ID: "GPU-a", Limit: 100, Used: 50, Processes: 2}, b,
		}},
		"a device without a name is none": {func(m image) { m.put(uuidsAt, 0) }, everybody, []DeviceUsage{b}},
		"sums stop at the largest amount": {func(m image) {
			m.process(0, 7, 1, 0, 0, 0, uint64(sharing.MaxBytes))
			m.process(2, 8, 1, 0, 0, 0, uint64(sharing.MaxBytes))
		}, everybody, []DeviceUsage{a, {ID: "GPU-b", Used: sharing.MaxBytes, Processes: 2}}},
		"compute that is limited and unused is measured": {func(m image) { m.put(pacesAt+paceRefilledAt, 1, 0) }, everybody, []DeviceUsage{
			{ID: "GPU-a", Limit: 100, Used: 50, Imported: 3, Overflow: 9, Processes: 2, Measured: true}, b,
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := newImage()
			c.change(m)
			got, err := DecodeRegion(bytes.NewReader(m), c.alive)
			if err != nil || !reflect.DeepEqual(got.Devices, c.want) {
				t.Errorf("the region is\n%+v (%v)\nwant\n%+v", got.Devices, err, c.want)
			}
		})
	}
}

func TestARegionThatCannotBeIsAnError(t *testing.T) {
	const tooMuch = 1 << 63
	cases := map[string]struct {
		change func(m image) image
		want   string
	}{
		"nothing":                     {func(m image) image { return nil }, "ends within"},
		"half of the head":            {func(m image) image { return m[:100] }, "ends within"},
		"HAMi's part alone":           {func(m image) image { return m[:2008952] }, "ends within"},
		"half of the extension":       {func(m image) image { return m[:pacesAt] }, "ends within"},
		"zeros":                       {func(m image) image { return make(image, regionSize) }, "being made"},
		"another major version":       {func(m image) image { m.put32(4, 2); return m }, "19920718, 2"},
		"an extension without magic":  {func(m image) image { m.put(extensionAt, 0); return m }, "no"},
		"more slots than there are":   {func(m image) image { m.put32(processCountAt, 1025); return m }, "1025 slots"},
		"fewer slots than none":       {func(m image) image { m.put32(processCountAt, -1); return m }, "-1 slots"},
		"a limit that is no amount":   {func(m image) image { m.put(limitsAt+8, tooMuch); return m }, "limit of device 1"},
		"a use that is no amount":     {func(m image) image { m.process(2, 8, 1, 0, 0, 0, tooMuch); return m }, "slot 2: device 1"},
		"an import that is no amount": {func(m image) image { m.show(0, 1, tooMuch, 0); return m }, "slot 0: imports of device 1"},
		"an overflow of that kind":    {func(m image) image { m.show(0, 1, 0, tooMuch); return m }, "slot 0: overflow of device 1"},
		"a time of that kind":         {func(m image) image { m.put(pacesAt+paceSpentAt, tooMuch); return m }, "GPU time of device 0"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeRegion(bytes.NewReader(c.change(newImage())), everybody)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestReadingEndsWhenItMust(t *testing.T) {
	late := errors.New("late")
	if _, err := DecodeRegion(bytes.NewReader(newImage()), func(int) (bool, error) { return false, late }); !errors.Is(err, late) {
		t.Errorf("the error is %v", err)
	}
}

// FuzzDecode changes a good region in one place and cuts it: most of the file is
// zeros, so noise alone would not come past the head.
func FuzzDecode(f *testing.F) {
	for _, at := range []uint32{0, uuidsAt, limitsAt, processesAt, processesAt + processStatusAt, processCountAt, extensionAt, slotsAt, pacesAt} {
		f.Add(at, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, uint32(regionSize))
		f.Add(at, []byte{0, 4, 0, 0}, at+3)
	}
	m := newImage()
	f.Fuzz(func(t *testing.T, at uint32, noise []byte, size uint32) {
		at %= uint32(len(m))
		noise = noise[:min(len(noise), len(m)-int(at))]
		good := bytes.Clone(m[at : int(at)+len(noise)])
		copy(m[at:], noise)
		defer copy(m[at:], good)
		region, err := DecodeRegion(bytes.NewReader(m[:min(int(size), len(m))]), everybody)
		if err != nil {
			if region.Devices != nil {
				t.Error("an error came with a value")
			}
			return
		}
		if len(region.Devices) > maxDevices {
			t.Errorf("%d devices", len(region.Devices))
		}
		for _, d := range region.Devices {
			if d.ID == "" || len(d.ID) > uuidSize || d.Processes < 0 || d.Processes > maxProcesses || d.Busy < time.Duration(0) ||
				min(d.Used, d.Limit, d.Uncounted, d.Imported, d.Overflow) < 0 {
				t.Errorf("a device is %+v", d)
			}
		}
	})
}
