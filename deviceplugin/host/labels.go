// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Labels lets containers use what they are given of the host, where the host decides that by
// labels. Implementations are safe for concurrent use.
type Labels interface {
	// Label gives a file or a directory the label of containers, unless it has it. Of a symbolic
	// link it is the link that is labelled. An error means that containers cannot use it.
	Label(path string) error
}

// containerLabel is the label that the policy of container runtimes (container-selinux) has for
// the files of containers. Its level has no categories, so containers of any category may use the
// file: the processes of a pod have two categories of their own.
const containerLabel = "system_u:object_r:container_file_t:s0"

// labelAttribute is the extended attribute in which SELinux keeps the label of a file.
const labelAttribute = "security.selinux"

// SELinux labels with containerLabel. The zero value is ready.
type SELinux struct{}

// Label implements Labels. It looks first: on a file system whose mount options label all files
// the label cannot be set, and need not be.
func (SELinux) Label(path string) error {
	have := make([]byte, len(containerLabel)+1) // the kernel may add a 0; a longer label does not fit
	if n, err := unix.Lgetxattr(path, labelAttribute, have); err == nil && strings.TrimRight(string(have[:n]), "\x00") == containerLabel {
		return nil
	}
	if err := unix.Lsetxattr(path, labelAttribute, []byte(containerLabel), 0); err != nil {
		return fmt.Errorf("label %s as %s, without which SELinux keeps containers from it: %w "+
			"(the file system must hold labels, the policy must know the type: docs/selinux.md)", path, containerLabel, err)
	}
	return nil
}

// LabelsOf returns how what containers see is labelled on a host, nil where it needs no labels.
// proc is where procfs is mounted: in a container, too, it says what the kernel does, while
// selinuxfs is not to be seen there. A policy that is only permissive makes no difference, since
// anybody may have it enforced at any time, under containers that run.
func LabelsOf(proc string) (Labels, error) {
	known, err := os.ReadFile(filepath.Join(proc, "filesystems"))
	if err != nil {
		return nil, fmt.Errorf("look whether the host has SELinux: %w", err)
	}
	if !knowsSELinux(known) {
		return nil, nil
	}
	own, err := os.ReadFile(filepath.Join(proc, "self", "attr", "current"))
	if err != nil {
		return nil, fmt.Errorf("look whether SELinux has a policy: %w", err)
	}
	if !hasPolicy(own) {
		return nil, nil
	}
	return SELinux{}, nil
}

// knowsSELinux reports whether SELinux is on, by the list of file systems (filesystems(5)).
func knowsSELinux(filesystems []byte) bool {
	for line := range bytes.Lines(filesystems) {
		if words := bytes.Fields(line); len(words) > 0 && string(words[len(words)-1]) == "selinuxfs" {
			return true
		}
	}
	return false
}

// hasPolicy reports whether a policy was loaded, by the label of a process. Before, every process
// has the label "kernel".
func hasPolicy(own []byte) bool {
	return strings.TrimRight(string(own), "\x00\n") != "kernel"
}

func applyLabel(l Labels, path string) error {
	if l == nil {
		return nil
	}
	return l.Label(path)
}
