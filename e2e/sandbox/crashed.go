// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// gone is what the kernel appends to the root of a mount whose directory was deleted.
const gone = "//deleted"

// crashed returns the state directories of sandboxes whose directory is mounted over /var/lib/kubelet. marked reports
// whether a directory is a sandbox's state directory.
func crashed(mounts []mount, marked func(dir string) bool) (states []string) {
	for _, m := range below(mounts, kubeletDir) {
		if m.point != kubeletDir {
			continue
		}
		for _, dir := range shownAt(mounts, m) {
			state, name := filepath.Dir(dir), filepath.Base(dir)
			if name == "kubelet" && marked(state) && !slices.Contains(states, state) {
				states = append(states, state)
			}
		}
	}
	return states
}

// deleted returns the mounts over /var/lib/kubelet, with all on top of them, of a sandbox whose directory was deleted,
// which nobody can want.
func deleted(mounts []mount) []mount {
	all := below(mounts, kubeletDir)
	first := slices.IndexFunc(all, func(m mount) bool { return m.point == kubeletDir && strings.HasSuffix(m.root, "/kubelet"+gone) })
	if first < 0 {
		return nil
	}
	return all[first:]
}

// shownAt returns the paths at which the directory that m mounts can be seen besides m itself. The root of a mount is a
// path in its file system, which may be mounted anywhere.
func shownAt(mounts []mount, m mount) []string {
	var out []string
	for _, other := range mounts {
		rest, inside := strings.CutPrefix(m.root, strings.TrimSuffix(other.root, "/"))
		if other.device == m.device && inside && strings.HasPrefix(rest, "/") {
			out = append(out, filepath.Join(other.point, rest))
		}
	}
	return out
}

// cleanCrashed cleans up after sandboxes with other state directories that were killed, of another clone for example,
// as far as they lie over /var/lib/kubelet. No kubelet must run. It is an error when one of them lives.
func cleanCrashed(o Options) error {
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	states := crashed(mounts, func(dir string) bool { return exists(filepath.Join(dir, markerFile)) })
	for _, state := range states {
		o.Progress("cleaning up after a sandbox that was killed: " + state)
		if err := cleanOther(layout{state: state}); err != nil {
			return fmt.Errorf("clean up after the sandbox in %s: %w", state, err)
		}
	}
	if mounts, err = readMounts(); err != nil {
		return err
	}
	return unmountAll(deleted(mounts))
}

func cleanOther(l layout) error {
	k, err := takeLock(l)
	if err != nil {
		return err
	}
	defer k.release()
	return clean(l)
}
