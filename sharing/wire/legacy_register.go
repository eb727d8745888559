// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"deviceshare/sharing"
)

// typePrefix stands before the model name in the register text; alone it is the
// device type in the assigned text.
const typePrefix = "NVIDIA"

// EncodeRegister writes the devices in the legacy grammar: for each device
//
//	UUID,count,memory,NVIDIA-model,health,mode:
//
// with memory in units of factor MiB, rounded down. The inventory must be one
// that EncodeInventory accepts. The commas and colons a model name may hold are
// written as underscores.
//
// Legacy schedulers never look at health and take the mode of the last device
// for the whole node. So two kinds of devices are withheld from them with count 0
// and health false: those that are not healthy, and those on which they would
// place by the wrong rules, because the device is in mode mig and the last one is
// not, or the reverse.
func EncodeRegister(inv sharing.Inventory, factor int64) string {
	devices := slices.Clone(inv.Devices)
	slices.SortStableFunc(devices, func(a, b sharing.Device) int { return cmp.Compare(a.Index, b.Index) })
	var b strings.Builder
	for i := range devices {
		d := &devices[i]
		last := devices[len(devices)-1].Mode
		offered := d.Healthy && d.MaxShares > 0 && (d.Mode == sharing.MIG) == (last == sharing.MIG)
		count := 0
		if offered {
			count = d.MaxShares
		}
		b.WriteString(string(d.ID))
		b.WriteByte(',')
		b.WriteString(strconv.Itoa(count))
		b.WriteByte(',')
		b.WriteString(strconv.FormatInt(int64(d.Memory/sharing.MiB)/factorOrOne(factor), 10))
		b.WriteByte(',')
		b.WriteString(typePrefix + "-" + replaceSeparators(d.Model))
		b.WriteByte(',')
		b.WriteString(strconv.FormatBool(offered))
		b.WriteByte(',')
		b.WriteString(string(d.Mode))
		b.WriteByte(':')
	}
	return b.String()
}

// replaceSeparators replaces what separates fields, devices and containers.
func replaceSeparators(model string) string {
	return strings.Map(func(r rune) rune {
		if r == ',' || r == ':' || r == ';' {
			return '_'
		}
		return r
	}, model)
}

func factorOrOne(factor int64) int64 { return max(factor, 1) }

// DecodeRegister reads the legacy grammar. Six fields are the rule; five, as written
// before modes existed, mean mode hami-core; further fields are skipped. A device
// with count 0 reads as unhealthy, however its health field reads. What the text
// does not say is left open: indexes are the order in the text, compute is 100,
// NUMA is unknown, nothing is known about partitions. The text does not name the
// node. Errors are of type *Error.
func DecodeRegister(text string, factor int64) (sharing.Inventory, error) {
	f := &firstError{text: NodeRegister}
	inv := sharing.Inventory{}
	seen := map[sharing.DeviceID]struct{}{}
	err := forEachPiece(f, text, ':', func(piece string, offset int) {
		d := registeredDevice(f, piece, offset, factor)
		d.Index = len(inv.Devices)
		if _, twice := seen[d.ID]; twice {
			f.failf(bytePosition(offset), "device %s is there twice", quoteExcerpt(string(d.ID)))
		}
		seen[d.ID] = struct{}{}
		inv.Devices = append(inv.Devices, d)
	})
	if err != nil {
		return sharing.Inventory{}, err
	}
	return inv, nil
}

// forEachPiece calls each for every piece of a list whose members each end in sep; the
// last separator may be missing. It stops at the first mistake and returns it.
func forEachPiece(f *firstError, text string, sep byte, each func(piece string, offset int)) error {
	if len(text) > MaxText {
		f.failf("", "is %d bytes long, more than %d", len(text), MaxText)
	}
	for offset := 0; offset < len(text) && f.err == nil; {
		end := strings.IndexByte(text[offset:], sep)
		if end < 0 {
			end = len(text) - offset
		}
		if end == 0 {
			f.failf(bytePosition(offset), "an empty device")
			break
		}
		each(text[offset:offset+end], offset)
		offset += end + 1
	}
	return f.asError()
}

func registeredDevice(f *firstError, piece string, offset int, factor int64) sharing.Device {
	fields := strings.Split(piece, ",")
	if len(fields) < 5 {
		f.failf(bytePosition(offset), "device %s has %d fields, want 6", quoteExcerpt(piece), len(fields))
		return sharing.Device{}
	}
	d := sharing.Device{
		ID:        sharing.DeviceID(fields[0]),
		MaxShares: int(parseDecimal(f, offset, "count", fields[1], maxShares)),
		Memory:    memoryOf(f, offset, fields[2], factor),
		Model:     strings.TrimPrefix(fields[3], typePrefix+"-"),
		Cores:     100,
		Mode:      sharing.HAMiCore,
		NUMA:      -1,
	}
	if !validID(fields[0]) {
		f.failf(bytePosition(offset), "%s is not a device UUID", quoteExcerpt(fields[0]))
	}
	if !validText(fields[3], longestModel) {
		f.failf(bytePosition(offset), "%s is not a device type", quoteExcerpt(fields[3]))
	}
	if fields[4] != "true" && fields[4] != "false" {
		f.failf(bytePosition(offset), "health %s is not true or false", quoteExcerpt(fields[4]))
	}
	d.Healthy = fields[4] == "true" && d.MaxShares > 0
	if len(fields) > 5 {
		mode, err := sharing.ParseMode(fields[5])
		if err != nil {
			f.failf(bytePosition(offset), "%v", err)
		}
		d.Mode = mode
	}
	return d
}

// parseDecimal reads a plain decimal number of at most most.
func parseDecimal(f *firstError, offset int, name, text string, most int64) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strings.TrimLeft(text, "0123456789") != "" {
		f.failf(bytePosition(offset), "%s %s is not a number", name, quoteExcerpt(text))
		return 0
	}
	if n > most {
		f.failf(bytePosition(offset), "%s %s is more than %d", name, quoteExcerpt(text), most)
		return 0
	}
	return n
}

// memoryOf reads an amount in units of factor MiB.
func memoryOf(f *firstError, offset int, text string, factor int64) sharing.Bytes {
	units := parseDecimal(f, offset, "memory", text, math.MaxInt64)
	if units > int64(sharing.MaxBytes/sharing.MiB)/factorOrOne(factor) {
		f.failf(bytePosition(offset), "memory %s is more than any device has", quoteExcerpt(text))
		return 0
	}
	return sharing.MiBs(units * factorOrOne(factor))
}
