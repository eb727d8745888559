// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strconv"
	"strings"
)

// Instance is one partition as `fakegpuctl show` prints it.
type Instance struct {
	Device      string // UUID of the device it lies on
	UUID        string // of the partition
	Profile     string
	Start, Size int
	Users       []string // process lines below it
}

// Instances reads the partitions out of `fakegpuctl show`.
func Instances(show string) []Instance {
	var list []Instance
	device := ""
	for _, line := range strings.Split(show, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "device":
			device = Value(line, "uuid")
		case "instance":
			if Value(line, "ci") == "none" {
				continue
			}
			list = append(list, Instance{Device: device, UUID: Value(line, "uuid"), Profile: Value(line, "profile"),
				Start: whole(line, "start"), Size: whole(line, "size")})
		case "process":
			// Users of a partition are indented below it, those of a whole device are not.
			if len(list) > 0 && strings.HasPrefix(line, "    ") {
				last := &list[len(list)-1]
				last.Users = append(last.Users, strings.TrimSpace(line))
			}
		}
	}
	return list
}

// whole is -1 where there is no number.
func whole(line, key string) int {
	n, err := strconv.Atoi(Value(line, key))
	if err != nil {
		return -1
	}
	return n
}
