// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"strconv"
	"strings"
)

// minors are the numbers of capability nodes by the name of the capability, such
// as "gpu0/gi1/ci0/access".
type minors map[string]int

// parseMinors reads the driver's table, /proc/driver/nvidia-caps/mig-minors: one
// capability and its number per line. It is total: the whole table, or an error
// that names the line.
func parseMinors(text []byte) (minors, error) {
	table := minors{}
	for n, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 2 {
			return nil, fmt.Errorf("line %d %q: want a capability and a number", n+1, line)
		}
		minor, err := strconv.ParseUint(fields[1], 10, 20) // the kernel has 20 bits for it
		if err != nil {
			return nil, fmt.Errorf("line %d: %q is no number of a device node", n+1, fields[1])
		}
		if _, twice := table[fields[0]]; twice {
			return nil, fmt.Errorf("line %d: %s is there twice", n+1, fields[0])
		}
		table[fields[0]] = int(minor)
	}
	return table, nil
}

// gpuInstance and computeInstance name the capabilities that a process needs to
// use a MIG device; gpu is the number of the device's node.
func gpuInstance(gpu, gi int) string { return fmt.Sprintf("gpu%d/gi%d/access", gpu, gi) }

func computeInstance(gpu, gi, ci int) string {
	return fmt.Sprintf("gpu%d/gi%d/ci%d/access", gpu, gi, ci)
}
