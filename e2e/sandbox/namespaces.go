// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// namespaces are the PID and the mount namespace of one cluster. Every component, container and
// short command of the cluster runs in them. The kernel kills all processes of a PID namespace when
// its first process ends, and undoes all mounts of a mount namespace when its last process has
// ended, so nothing outlives the first process. That one dies with the process that owns the
// cluster, even when the owner is killed by SIGKILL.
//
// Users, network and host name are those of the machine: a kubeconfig works from anywhere.
type namespaces struct {
	*thread // is in the mount namespace, and its children are in both

	first *exec.Cmd
}

// hidden are the directories outside the state directory in which containerd and its plugins leave
// files, whatever their configuration says. The cluster sees empty ones in their place.
var hidden = [...]string{"/run/containerd", "/var/lib/cni", "/var/log/containers"}

// sysctls are the kernel settings that a kubelet and the ptp plugin write. They are the whole
// machine's, so the cluster writes to files in their place.
var sysctls = [...]string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward"}

// makeNamespaces makes the namespaces of a cluster whose state directory exists.
func makeNamespaces(ctx context.Context, l layout, installed bool) (*namespaces, error) {
	n := &namespaces{thread: newThread(), first: exec.Command(l.bin("pause"))}
	n.first.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := n.start(n.first); err != nil {
		n.thread.end()
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: it needs CAP_SYS_ADMIN; use sudo, or a privileged container", err)
		}
		return nil, fmt.Errorf("start the first process of the cluster in namespaces of its own: %w", err)
	}
	if err := n.furnish(ctx, l, installed); err != nil {
		n.end()
		return nil, err
	}
	return n, nil
}

// usualSocket is where containerd's socket is on a node.
const usualSocket = "/run/containerd/containerd.sock"

// furnish moves the thread into the namespaces and mounts what the cluster sees differently than
// the machine.
func (n *namespaces) furnish(ctx context.Context, l layout, installed bool) error {
	if err := n.do(n.enter); err != nil {
		return err
	}
	// Only a process inside the PID namespace can mount its /proc.
	if _, err := n.run(ctx, nil, "mount", "-t", "proc", "proc", "/proc"); err != nil {
		return err
	}
	return n.do(func() error {
		for _, dir := range hidden {
			if err := mountAt(dir, "tmpfs", "tmpfs", 0); err != nil {
				return err
			}
		}
		if err := os.Symlink(l.containerdSocket(), usualSocket); err != nil {
			return fmt.Errorf("show containerd's socket where it usually is: %w", err)
		}
		if err := mountAt(kubeletDir, l.kubeletRoot(), "", unix.MS_BIND); err != nil {
			return err
		}
		if installed {
			if err := mountPlaces(l); err != nil {
				return err
			}
		}
		return hideSysctls(l)
	})
}

// enter moves the thread it runs on into the namespaces of the first process. Mounts of the machine
// and of the cluster do not reach each other from then on. Those of the cluster are shared among
// its processes, because a volume may ask the kubelet for mounts that propagate.
func (n *namespaces) enter() error {
	first, err := unix.PidfdOpen(n.first.Process.Pid, 0)
	if err != nil {
		return fmt.Errorf("find the first process of the cluster: %w", err)
	}
	defer unix.Close(first)
	// A thread that shares its working directory with others cannot change its mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("give a thread a working directory of its own: %w", err)
	}
	if err := unix.Setns(first, unix.CLONE_NEWPID|unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the namespaces of the cluster: %w", err)
	}
	for _, how := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", unix.MS_REC|how, ""); err != nil {
			return fmt.Errorf("part the mounts of the cluster from the machine's: %w", err)
		}
	}
	return nil
}

// mountAt mounts something over a directory, which it creates where it is missing.
func mountAt(dir, what, fstype string, flags uintptr) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create %s: %w", dir, err)
	}
	if err := unix.Mount(what, dir, fstype, flags, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", what, dir, err)
	}
	return nil
}

// hideSysctls mounts a file with the present value over each kernel setting that the cluster would
// change.
func hideSysctls(l layout) error {
	for _, name := range sysctls {
		setting := filepath.Join("/proc/sys", name)
		value, err := os.ReadFile(setting)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the kernel setting %s: %w", name, err)
		}
		file := l.in("sysctl", strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, value, 0o644); err != nil {
			return fmt.Errorf("copy the kernel setting %s: %w", name, err)
		}
		if err := unix.Mount(file, setting, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("hide the kernel setting %s from the cluster: %w", name, err)
		}
	}
	return nil
}

// run runs a short command in the namespaces, with additions to the environment, and returns its
// output.
func (n *namespaces) run(ctx context.Context, env []string, name string, args ...string) (string, error) {
	return n.runFor(ctx, time.Minute, env, name, args...)
}

// runFor is run for a command that may take longer.
func (n *namespaces) runFor(ctx context.Context, limit time.Duration, env []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := n.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return out.String(), fmt.Errorf("run %s %q: %w\n%s", filepath.Base(name), args, err, lastLines(out.String()))
	}
	return out.String(), nil
}

// end kills whatever runs in the namespaces and returns once all of it is gone. It must be called
// once.
func (n *namespaces) end() {
	_ = n.first.Process.Kill()
	_ = n.first.Wait() // the kernel lets the first process end last
	n.thread.end()
}
