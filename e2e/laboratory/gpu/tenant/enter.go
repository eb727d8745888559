// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// enterWord is the first argument of this program when it is to become a program of
// a tenant: enterWord DIR PRELOAD PROGRAM ARGUMENTS...
const enterWord = "enter-tenant"

// Enter is to be called first in main. In a process that a tenant started it puts the
// tenant's files at their places and becomes the tenant's program; it returns in
// every other.
func Enter() {
	if len(os.Args) < 5 || os.Args[1] != enterWord {
		return
	}
	if err := enter(os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, "enter tenant:", err)
		os.Exit(126)
	}
}

func enter(dir, preload string, program []string) error {
	mounts := [][2]string{{filepath.Join(dir, "vgpu"), limitsDir}, {filepath.Join(dir, "region"), regionDir}}
	if node, err := filepath.EvalSymlinks(filepath.Join(dir, nodeLink)); err == nil {
		mounts = append(mounts, [2]string{node, neighboursDir})
	}
	for _, m := range mounts {
		if err := syscall.Mount(m[0], m[1], "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m[0], m[1], err)
		}
	}
	if os.Getpid() == 1 { // a PID namespace of its own
		if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			return fmt.Errorf("mount /proc: %w", err)
		}
	}
	env := os.Environ()
	if preload != "" {
		env = append(env, "LD_PRELOAD="+preload)
	}
	if err := syscall.Exec(program[0], program, env); err != nil {
		return fmt.Errorf("become %s: %w", program[0], err)
	}
	return nil
}

// Probe finds out whether this machine allows mount namespaces and a place for
// limits, by running a program in one. It sets Namespaces, and returns why not.
func (m *Machine) Probe(ctx context.Context) error {
	for _, dir := range []string{limitsDir, regionDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a place for limits: %w", err)
		}
	}
	m.Namespaces = true
	t, err := m.New(Ours, Limits{})
	if err == nil {
		var out string
		out, err = t.unhooked().Run(ctx, "cat", limitsDir+"/limits")
		if err == nil && !strings.HasPrefix(out, "vgpu-limits 1") {
			err = fmt.Errorf("a program in a namespace reads %q as its limits", out)
		}
	}
	m.Namespaces = err == nil
	return err
}

// unhooked is the tenant without the library, for programs that only look at files.
func (t *Tenant) unhooked() *Tenant {
	machine := *t.machine
	machine.Library = ""
	return &Tenant{machine: &machine, kind: t.kind, limits: t.limits, dir: t.dir}
}

// Clock is the machine's clock in the form that the programs print.
func Clock() int64 { return time.Now().UnixNano() }

// Missing returns the first of the programs that this machine lacks, "" if none.
func Missing(programs ...string) string {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			return p
		}
	}
	return ""
}
