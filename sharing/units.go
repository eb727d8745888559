// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"math"
	"strconv"
)

// Bytes is an amount of device memory in bytes. Arithmetic saturates instead of
// wrapping: an in-tree predecessor of this code reported 17 TB used after an
// unsigned underflow.
type Bytes int64

// The units amounts are written in. The wire formats count MiB.
const (
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

// MaxBytes is the largest amount; sums stop there.
const MaxBytes Bytes = math.MaxInt64

// MiBs returns n MiB, or MaxBytes when that does not fit, or 0 for a negative n.
func MiBs(n int64) Bytes {
	if n > int64(MaxBytes/MiB) {
		return MaxBytes
	}
	return max(Bytes(n), 0) * MiB
}

// Plus adds without wrapping.
func (b Bytes) Plus(c Bytes) Bytes {
	if c > 0 {
		return min(b, MaxBytes-c) + c
	}
	return max(b, -MaxBytes-c) + c
}

// Less subtracts, and never goes below zero.
func (b Bytes) Less(c Bytes) Bytes {
	if c >= b {
		return 0
	}
	return b - c
}

// WholeMiB returns the amount in MiB, rounded up, so that what is written down
// is never less than what was given.
func (b Bytes) WholeMiB() int64 {
	if b <= 0 {
		return 0
	}
	return int64((b-1)/MiB) + 1
}

// String prints the amount with the largest binary unit that leaves it whole.
func (b Bytes) String() string {
	switch {
	case b == 0:
		return "0"
	case b%GiB == 0:
		return strconv.FormatInt(int64(b/GiB), 10) + "GiB"
	case b%MiB == 0:
		return strconv.FormatInt(int64(b/MiB), 10) + "MiB"
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// Percent is compute in percent of one device: 100 is the whole device. A device
// whose compute is oversubscribed offers more than 100.
type Percent int

// Of returns p percent of b, rounded down to whole MiB: a share never exceeds
// the fraction that was asked for. A negative or zero percentage is 0.
func (p Percent) Of(b Bytes) Bytes {
	if p <= 0 {
		return 0
	}
	whole := int64(max(b, 0) / MiB)
	if whole > math.MaxInt64/int64(p) {
		return MaxBytes
	}
	return MiBs(whole * int64(p) / 100)
}
