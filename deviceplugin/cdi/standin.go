// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/deviceplugin/modes"
)

// standIn puts files in the place of the driver's libraries. Whatever name a
// program or a link has for a library leads to the file that stands in; the
// driver's own lies beside it as <library>.driver, where that file looks for it.
// A library that the container does not get by itself is an error: nothing would
// stand in for it.
func standIn(mounts []*specs.Mount, standIns []modes.StandIn) ([]*specs.Mount, error) {
	for _, s := range standIns {
		if err := requireCleanPath(s.Host); err != nil {
			return nil, fmt.Errorf("library to stand in for %s: %w", s.Library, err)
		}
		next := make([]*specs.Mount, 0, len(mounts)+1)
		moved := map[string]bool{}
		for _, m := range mounts {
			dir, name := path.Split(m.ContainerPath)
			if !versionOf(name, s.Library) {
				next = append(next, m)
				continue
			}
			next = append(next, bindMount(s.Host, m.ContainerPath, true))
			if !moved[dir] {
				own := *m
				own.ContainerPath = dir + s.Library + ".driver"
				own.Options = slices.Clone(m.Options)
				next = append(next, &own)
				moved[dir] = true
			}
		}
		if len(moved) == 0 {
			return nil, fmt.Errorf("%s is not among the driver's files, one by one, that containers get: nothing can stand in for it", s.Library)
		}
		mounts = next
	}
	return mounts, nil
}

// versionOf reports whether a file is some version of a library: libcuda.so.1,
// libcuda.so.580.95.05, but not libcuda.so.driver.
func versionOf(name, library string) bool {
	version, ok := strings.CutPrefix(name, library+".")
	return ok && version != "" && strings.Trim(version, "0123456789.") == ""
}
