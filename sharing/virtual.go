// SPDX-License-Identifier: Apache-2.0

package sharing

// Licence is what the driver of a virtual device says of the licence that NVIDIA sells for it.
type Licence string

// What is said of a licence. The texts are wire format.
const (
	// LicenceUnknown: the driver says nothing, or the device needs none.
	LicenceUnknown Licence = ""
	LicenceValid   Licence = "valid"
	LicenceMissing Licence = "missing"
)

// VirtualRule is which devices a pod accepts, of those that are virtual and those that are not. The
// zero value is all of them.
type VirtualRule uint8

// The rules.
const (
	VirtualOrNot VirtualRule = iota
	NeverVirtual
	OnlyVirtual
)

func (r VirtualRule) acceptsDevice(d *Device) bool {
	return r == VirtualOrNot || d.Virtual == (r == OnlyVirtual)
}
