// SPDX-License-Identifier: Apache-2.0

package modes

import (
	"fmt"
	"strings"

	"deviceshare/sharing"
)

// Check reports what makes a claim unfit for the preparer of a mode. Names become
// parts of paths and of line-based files, so anything that could change the
// meaning of either is refused.
func (c *Claim) Check(mode sharing.Mode) error {
	for what, text := range map[string]string{"allocation id": c.ID, "owner": string(c.Owner), "container": c.Container} {
		if !isPathElement(text) {
			return fmt.Errorf("claim of container %q of pod %s/%s: the %s %q cannot be part of a file name",
				c.Container, c.Namespace, c.Pod, what, text)
		}
	}
	if len(c.Devices) == 0 {
		return fmt.Errorf("claim %s: it names no device", c.ID)
	}
	for i := range c.Devices {
		d := &c.Devices[i]
		switch {
		case d.Share.Mode != mode:
			return fmt.Errorf("claim %s: the share of device %s is of mode %q, not %q", c.ID, d.Share.Device, d.Share.Mode, mode)
		case d.Share.Device != d.Device.ID:
			return fmt.Errorf("claim %s: the share is of device %s but comes with device %s", c.ID, d.Share.Device, d.Device.ID)
		case !isPathElement(string(d.Device.ID)):
			return fmt.Errorf("claim %s: the device id %q cannot be written down", c.ID, d.Device.ID)
		}
	}
	return nil
}

// isPathElement reports that text is a single, visible path element.
func isPathElement(text string) bool {
	if text == "" || text == "." || text == ".." || len(text) > 200 {
		return false
	}
	return strings.IndexFunc(text, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '/' || r == '\\'
	}) < 0
}
