// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxGeometries is how many geometries a device may publish and a group of devices may be
// configured with. An A100 has 19 that differ, and every placement looks at all of them.
const MaxGeometries = 32

// Lengths of names, in bytes, and other bounds that only nonsense exceeds.
const (
	longestName   = 253 // of a Kubernetes name
	longestID     = 128
	longestModel  = 256
	longestReason = 512
	maxIndex      = 1 << 16
	maxShares     = 1 << 16
	maxCores      = 100 * 100 // 100 times oversubscribed
	maxSlices     = 16        // a device has 8 today
	maxProfiles   = 32
	// maxCuts bounds the geometries of all devices of a node: 16 devices with as many as each may
	// have.
	maxCuts  = 16 * MaxGeometries
	maxLinks = 64 // NVLinks of one device; no device has as many
	maxCount = 1024
)

// validID reports whether s can be a device UUID: it stands between commas,
// colons, semicolons and brackets in legacy texts.
func validID(s string) bool {
	if s == "" || len(s) > longestID {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !isIDByte(s[i]) {
			return false
		}
	}
	return true
}

func isIDByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_./", c) >= 0
}

// ValidGroup reports whether s can name a geometry: it is the part before the
// dash in uuid[group-position], and legacy readers split at every dash.
func ValidGroup(s string) bool {
	return validID(s) && !strings.Contains(s, "-")
}

// validName reports whether s is not empty, at most longest bytes and free of
// control characters and broken UTF-8.
func validName(s string, longest int) bool {
	return s != "" && validText(s, longest)
}

func validText(s string, longest int) bool {
	return len(s) <= longest && utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}
