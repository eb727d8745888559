// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"path"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/deviceplugin/modes"
)

// hookTimeout is how long one of our hooks may take, in seconds. It reads one small file.
const hookTimeout = 10

// addHooks adds hooks that run in the namespaces of the host when the container's root is there:
// they see the image, and nothing that is mounted over it.
func addHooks(edits *specs.ContainerEdits, hooks []modes.Hook) error {
	for _, h := range hooks {
		if err := requireCleanPath(h.Path); err != nil {
			return fmt.Errorf("hook: %w", err)
		}
		args, timeout := []string{path.Base(h.Path)}, hookTimeout
		for _, a := range h.Args {
			if !isEncodable(a) {
				return fmt.Errorf("hook %s: argument %q cannot be written down", h.Path, a)
			}
			args = append(args, a)
		}
		edits.Hooks = append(edits.Hooks, &specs.Hook{HookName: cdi.CreateRuntimeHook, Path: h.Path, Args: args, Timeout: &timeout})
	}
	return nil
}
