// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// mount is one line of /proc/self/mountinfo.
type mount struct {
	device string // major:minor of its file system
	point  string // where it is mounted
	root   string // which directory of its file system
	fstype string
}

// parseMountinfo reads the text of /proc/self/mountinfo (proc_pid_mountinfo(5)) and skips lines it cannot read.
func parseMountinfo(text string) []mount {
	var out []mount
	for line := range strings.Lines(text) {
		head, tail, ok := strings.Cut(line, " - ")
		fields, after := strings.Fields(head), strings.Fields(tail)
		if !ok || len(fields) < 5 || len(after) < 1 {
			continue
		}
		out = append(out, mount{device: fields[2], point: unescapeMount(fields[4]), root: unescapeMount(fields[3]), fstype: after[0]})
	}
	return out
}

// unescapeMount undoes the kernel's octal escapes of space, tab, newline and backslash.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// below keeps the mounts on dir or under it.
func below(mounts []mount, dir string) []mount {
	var out []mount
	for _, m := range mounts {
		if m.point == dir || strings.HasPrefix(m.point, dir+"/") {
			out = append(out, m)
		}
	}
	return out
}

func readMounts() ([]mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return parseMountinfo(string(text)), nil
}

// unmountBelow unmounts everything on dir and under it.
func unmountBelow(dir string) error {
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	return unmountAll(below(mounts, dir))
}

// unmountAll unmounts the newest first. Unmounting one mount can take its peers away, so one that is gone already is
// no error.
func unmountAll(mounts []mount) error {
	var errs []error
	for _, m := range slices.Backward(mounts) {
		err := syscall.Unmount(m.point, syscall.MNT_DETACH|unmountNoFollow)
		if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m.point, err))
		}
	}
	return errors.Join(errs...)
}

// unmountNoFollow is UMOUNT_NOFOLLOW of umount2(2), which package syscall lacks.
const unmountNoFollow = 8

// ownKubeletMounts are the mounts on and under /var/lib/kubelet from the first one on that shows the sandbox's own
// directory there. Whatever was mounted there before them belongs to somebody else.
func ownKubeletMounts(mounts []mount, l layout) []mount {
	all := below(mounts, kubeletDir)
	for i, m := range all {
		// The root is a path in its file system, which may itself be mounted anywhere.
		root := strings.TrimSuffix(m.root, gone)
		if m.point == kubeletDir && root != "/" && strings.HasSuffix(l.kubeletRoot(), root) {
			return all[i:]
		}
	}
	return nil
}

// mountKubeletDir mounts the sandbox's own directory over /var/lib/kubelet, so that what lies there already stays
// untouched and everything that the kubelet writes is below the state directory.
func mountKubeletDir(l layout) error {
	if err := os.MkdirAll(kubeletDir, 0o755); err != nil {
		return fmt.Errorf("create the kubelet's directory: %w", err)
	}
	if err := syscall.Mount(l.kubeletRoot(), kubeletDir, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", l.kubeletRoot(), kubeletDir, err)
	}
	return nil
}

// unmountKubeletDir undoes mountKubeletDir, also when the state directory was deleted meanwhile.
func unmountKubeletDir(l layout) error {
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	return unmountAll(ownKubeletMounts(mounts, l))
}
