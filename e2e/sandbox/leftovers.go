// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Directories outside the state directory in which containerd and the kubelet leave small files, whatever their
// configuration says.
const (
	shimSockets   = "/run/containerd/s"
	cniResults    = "/var/lib/cni/results"
	containerLogs = "/var/log/containers"
)

// clean removes everything that a sandbox with this state directory may have left: processes, containers, mounts,
// cgroups and files. It is used after a crash and at the end of every run. Log files stay.
func clean(l layout) error {
	errs := []error{killMarked(l.marker()), removeCgroup(l)}
	errs = append(errs, unmountKubeletDir(l), unmountBelow(l.state))
	removeDeadSockets(shimSockets)
	removeMatching(filepath.Join(cniResults, l.network()+"-*"))
	removeLinksInto(containerLogs, l.state)
	restoreSysctls(l)
	errs = append(errs, wipe(l))
	return errors.Join(errs...)
}

// markerFile is in every state directory that is not at the default place. A directory there that holds other things
// but not this file is never emptied: its path may be a typing mistake.
const markerFile = "deviceshare-sandbox.state"

// ours reports whether the state directory may be emptied.
func (l layout) ours() bool {
	return l.state == defaultState(l.repo) || exists(l.in(markerFile))
}

// claim refuses a directory that is in use for something else, creates a new one and marks it.
func claim(l layout) error {
	if err := os.MkdirAll(l.state, 0o755); err != nil {
		return fmt.Errorf("create the state directory: %w", err)
	}
	entries, err := os.ReadDir(l.state)
	if err != nil {
		return fmt.Errorf("look at the state directory: %w", err)
	}
	if len(entries) > 0 && !l.ours() {
		return fmt.Errorf("state directory %s holds something that is not a sandbox's and would be deleted; choose another", l.state)
	}
	return os.WriteFile(l.in(markerFile), []byte("deviceshare sandbox 1\n"), 0o644)
}

// wipe empties the state directory but for the logs.
func wipe(l layout) error {
	entries, err := os.ReadDir(l.state)
	if errors.Is(err, os.ErrNotExist) || !l.ours() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("empty the state directory: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if e.Name() != "logs" && e.Name() != markerFile {
			errs = append(errs, os.RemoveAll(l.in(e.Name())))
		}
	}
	return errors.Join(errs...)
}

// removeDeadSockets removes the Unix sockets in dir that nobody listens on: a shim that was killed leaves its own.
func removeDeadSockets(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		conn, err := net.Dial("unix", path)
		if err == nil {
			_ = conn.Close()
			continue
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
}

func removeMatching(pattern string) {
	files, _ := filepath.Glob(pattern)
	for _, f := range files {
		_ = os.Remove(f)
	}
}

// removeLinksInto removes the symbolic links in dir that point below target.
func removeLinksInto(dir, target string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		link := filepath.Join(dir, e.Name())
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, target+"/") {
			_ = os.Remove(link)
		}
	}
}

// sysctls are the kernel settings that a kubelet and the ptp plugin change; they are put back at the end.
var sysctls = [...]string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward"}

// saveSysctls remembers the settings in the state directory.
func saveSysctls(l layout) error {
	saved := map[string]string{}
	for _, name := range sysctls {
		if text, err := os.ReadFile(filepath.Join("/proc/sys", name)); err == nil {
			saved[name] = strings.TrimSpace(string(text))
		}
	}
	text, err := json.Marshal(saved)
	if err != nil {
		return fmt.Errorf("save kernel settings: %w", err)
	}
	return os.WriteFile(l.in("sysctls.json"), text, 0o644)
}

// restoreSysctls puts back what saveSysctls remembered, where it differs.
func restoreSysctls(l layout) {
	text, err := os.ReadFile(l.in("sysctls.json"))
	saved := map[string]string{}
	if err != nil || json.Unmarshal(text, &saved) != nil {
		return
	}
	for _, name := range sysctls {
		path := filepath.Join("/proc/sys", name)
		now, err := os.ReadFile(path)
		if before, ok := saved[name]; ok && err == nil && strings.TrimSpace(string(now)) != before {
			_ = os.WriteFile(path, []byte(before), 0o644)
		}
	}
}

// prepareMachine checks that the sandbox may use this machine and cleans up after a crash.
func prepareMachine(o Options, l layout) error {
	if os.Geteuid() != 0 {
		return errors.New("the sandbox needs root: the kubelet and containerd mount and make cgroups; run it with sudo")
	}
	if err := claim(l); err != nil {
		return err
	}
	if err := clean(l); err != nil {
		return fmt.Errorf("clean up after an earlier run: %w", err)
	}
	if err := os.RemoveAll(l.in("logs")); err != nil {
		return fmt.Errorf("remove old logs: %w", err)
	}
	if o.NoKubelet {
		return nil
	}
	procs, err := readProcs()
	if err != nil {
		return err
	}
	if p, found := foreignKubelet(procs, l.marker()); found {
		return fmt.Errorf("a kubelet runs on this machine already (process %d: %s): there can be only one, "+
			"because its device-plugin directory is fixed; stop it, or start the sandbox without a real node", p.pid, p.exe)
	}
	return cleanCrashed(o)
}

// nodev is the flag of statfs(2) for file systems on which device files do nothing.
const nodev = 4

// checkState says what is wrong with the file system of the state directory.
func checkState(l layout) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(l.state, &st); err != nil {
		return fmt.Errorf("look at the state directory: %w", err)
	}
	if st.Flags&nodev != 0 {
		return fmt.Errorf("state directory %s: its file system is mounted with nodev, the fake GPUs need device files; choose another", l.state)
	}
	return nil
}
