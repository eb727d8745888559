// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"strings"

	"deviceshare/deviceplugin/driver"
)

func describeInstances(instances []driver.Instance) string {
	if len(instances) == 0 {
		return "no instances"
	}
	names := make([]string, 0, len(instances))
	for i := range instances {
		names = append(names, instances[i].String())
	}
	return strings.Join(names, ", ")
}
