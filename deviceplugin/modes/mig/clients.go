// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"slices"
	"strings"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// describeUsers says, after "it is used", by what an instance is used as far as anybody knows.
func (p *Preparer) describeUsers(id sharing.DeviceID, in *driver.Instance) string {
	all, err := p.cfg.Driver.Clients(id)
	if err != nil {
		return fmt.Sprintf("by what cannot be found out (%v)", err)
	}
	theirs := slices.DeleteFunc(slices.Clone(all), func(c driver.Client) bool { return c.GI != in.GI })
	if len(theirs) > 0 {
		return fmt.Sprintf("by %s of no pod that this node prepared: end them", clientNames(theirs))
	}
	return "by something that the driver does not name" + openIn(all)
}

// openIn adds to a sentence in which processes a device is open.
func openIn(all []driver.Client) string {
	if len(all) == 0 {
		return ""
	}
	return "; the device is open in " + clientNames(all)
}

// clientNames names a few processes, as a text that is published has room for.
func clientNames(all []driver.Client) string {
	const most = 4
	var list []string
	for _, c := range all[:min(len(all), most)] {
		list = append(list, c.String())
	}
	if more := len(all) - most; more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}
