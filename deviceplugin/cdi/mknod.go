// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// capsDriver is the name under which the kernel lists the driver of capability
// nodes. Its number is given out when the module is loaded.
const capsDriver = "nvidia-caps"

// NodeMaker makes capability nodes.
type NodeMaker struct {
	// Drivers is the kernel's list of drivers and their numbers, /proc/devices.
	Drivers string
}

// makeNode makes the node with this number, and its link; what is there is no mistake.
func (n *NodeMaker) makeNode(path string, minor int) error {
	text, err := os.ReadFile(n.Drivers)
	if err != nil {
		return fmt.Errorf("find the number of driver %s: %w", capsDriver, err)
	}
	major, err := characterDriver(text, capsDriver)
	if err != nil {
		return fmt.Errorf("find the number of driver %s: %s: %w", capsDriver, n.Drivers, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make a capability node: %w", err)
	}
	// The link comes first, so that who is killed here leaves no node without one.
	if err := linkByNumber(path, major, minor); err != nil {
		return err
	}
	err = syscall.Mknod(path, syscall.S_IFCHR|0o444, deviceNumber(major, minor))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make capability node %s: %w", path, err)
	}
	return os.Chmod(path, 0o444) // what the driver asks for, whatever the umask
}

// linkByNumber makes the link that udev makes for nodes of other drivers, in the directory char
// beside the node's own. systemd before 240 lets a container have a device by that link only: at
// its next reload it would take one without from containers that run.
func linkByNumber(path string, major, minor int) error {
	directory, name := filepath.Split(filepath.Clean(path))
	byNumber := filepath.Join(directory, "..", "char")
	if err := os.MkdirAll(byNumber, 0o755); err != nil {
		return fmt.Errorf("link capability node %s: %w", path, err)
	}
	err := os.Symlink(filepath.Join("..", filepath.Base(directory), name), filepath.Join(byNumber, fmt.Sprintf("%d:%d", major, minor)))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("link capability node %s: %w", path, err)
	}
	return nil
}

// characterDriver finds a driver's number in the kernel's list.
func characterDriver(text []byte, name string) (int, error) {
	character := false
	for _, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "Character devices"):
			character = true
		case strings.HasPrefix(line, "Block devices"):
			character = false
		case character && len(fields) == 2 && fields[1] == name:
			major, err := strconv.ParseUint(fields[0], 10, 12) // the kernel has 12 bits for it
			if err != nil {
				return 0, fmt.Errorf("%q is no number of a driver", fields[0])
			}
			return int(major), nil
		}
	}
	return 0, errors.New("it is not loaded: modprobe nvidia")
}

// deviceNumber packs major and minor as the kernel wants them (makedev of glibc).
func deviceNumber(major, minor int) int {
	return minor&0xff | major&0xfff<<8 | minor&^0xff<<12
}
