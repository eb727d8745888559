// SPDX-License-Identifier: Apache-2.0

// Package tenant runs each program of the GPU suite as if it were in a container of its own:
// with the library in front of the driver, and with a limits file and a region that no other
// tenant sees. Where the machine allows mount namespaces, the files are at the same paths as
// in a container. Elsewhere the limits are passed in HAMi-core's variables.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Where a container has its limits and its region.
const (
	limitsDir     = "/usr/local/vgpu"
	neighboursDir = limitsDir + "/neighbours"
	regionDir     = "/tmp/vgpu"
	region        = "vgpu.cache"
	// nodeLink leads, in a tenant's directory, to what its neighbours share.
	nodeLink = "node"
	// demandBytes is the size of what a tenant tells of one device.
	demandBytes = 32
	// Grace is how long a killed program may take to be gone. One that hangs in the
	// driver is left behind.
	grace = 2 * time.Second
)

// Machine is where tenants run. It is not changed after the first tenant.
type Machine struct {
	Dir        string   // for the files of tenants; exists
	Library    string   // libvgpu.so
	UUID       string   // of the device
	Env        []string // for every program, as KEY=VALUE
	Namespaces bool     // a tenant gets a mount namespace

	made int
}

// Kind says whose library stands in front of the driver.
type Kind int

const (
	Bare  Kind = iota // nobody's
	Ours              // Machine.Library
	Other             // Limits.Library: HAMi-core, which is told by variables
)

// Limits of one tenant; zero amounts are unlimited.
type Limits struct {
	Memory  int64 // bytes
	Cores   int   // percent
	Policy  string
	Library string   // of a tenant of kind Other
	Env     []string // for this tenant's programs
	// Node names a group of tenants that tell each other of their demand, by files as
	// the device plugin makes them; "" is nobody's neighbour. It needs namespaces.
	Node string
	// None leaves out limits file and variables: the library alone.
	None bool
	// Enter lets a bare tenant's programs enter a namespace as others do, so that
	// starting them takes as long.
	Enter bool
	// Processes gives the tenant a PID namespace for each program.
	Processes bool
}

// Tenant is one container's worth of files.
type Tenant struct {
	machine *Machine
	kind    Kind
	limits  Limits
	dir     string
}

// New makes a tenant. An error names the file that could not be written.
func (m *Machine) New(kind Kind, limits Limits) (*Tenant, error) {
	m.made++
	t := &Tenant{machine: m, kind: kind, limits: limits, dir: filepath.Join(m.Dir, fmt.Sprintf("tenant-%d", m.made))}
	for _, dir := range []string{t.vgpu(), filepath.Dir(t.Region())} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, fmt.Errorf("make tenant %d: %w", m.made, err)
		}
	}
	if kind == Ours && limits.Node != "" && m.Namespaces {
		if err := t.introduce(); err != nil {
			return nil, fmt.Errorf("introduce tenant %d to its neighbours: %w", m.made, err)
		}
	}
	if kind == Ours && !limits.None && m.Namespaces {
		if err := os.WriteFile(filepath.Join(t.vgpu(), "limits"), []byte(t.text()), 0o644); err != nil {
			return nil, fmt.Errorf("write limits of tenant %d: %w", m.made, err)
		}
	}
	if kind == Other { // it opens itself by this path, and wants a directory for its locks
		if err := os.MkdirAll("/tmp/vgpulock", 0o777); err != nil {
			return nil, fmt.Errorf("make tenant %d: %w", m.made, err)
		}
		if err := copyFile(limits.Library, filepath.Join(t.vgpu(), "libvgpu.so")); err != nil {
			return nil, fmt.Errorf("install the other library for tenant %d: %w", m.made, err)
		}
	}
	return t, nil
}

func (t *Tenant) vgpu() string { return filepath.Join(t.dir, "vgpu") }

// Region is the path, outside of the tenant, of the file its processes share.
func (t *Tenant) Region() string { return filepath.Join(t.dir, "region", region) }

// text is the limits file.
func (t *Tenant) text() string {
	policy, borrow := t.limits.Policy, ""
	if policy == "" {
		policy = "default"
	}
	if t.limits.Node != "" {
		borrow = fmt.Sprintf("borrow %s/%s\n", neighboursDir, t.name())
	}
	return fmt.Sprintf("vgpu-limits 1\nregion %s/%s\npolicy %s\npriority 1\n%sdevice 0 %s memory=%d cores=%d\n",
		regionDir, region, policy, borrow, t.machine.UUID, t.limits.Memory, t.limits.Cores)
}

func (t *Tenant) name() string { return filepath.Base(t.dir) }

// introduce writes the tenant's two files among its neighbours': what it is entitled
// to, and the one it tells its demand in.
func (t *Tenant) introduce() error {
	node := filepath.Join(t.machine.Dir, "node-"+t.limits.Node)
	for _, dir := range []string{node, filepath.Join(t.vgpu(), filepath.Base(neighboursDir))} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink(node, filepath.Join(t.dir, nodeLink)); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(node, t.name()+".demand"), make([]byte, demandBytes), 0o666); err != nil {
		return err
	}
	share := fmt.Sprintf("vgpu-limits 1\npriority 1\ndevice 0 %s memory=0 cores=%d\n", t.machine.UUID, t.limits.Cores)
	return os.WriteFile(filepath.Join(node, t.name()+".share"), []byte(share), 0o644)
}

// variables are the limits as HAMi-core's variables.
func (t *Tenant) variables(regionPath string) []string {
	env := []string{"CUDA_DEVICE_MEMORY_SHARED_CACHE=" + regionPath}
	if t.limits.Memory > 0 {
		env = append(env, fmt.Sprintf("CUDA_DEVICE_MEMORY_LIMIT_0=%dm", t.limits.Memory>>20))
	}
	if t.limits.Cores > 0 {
		env = append(env, fmt.Sprintf("CUDA_DEVICE_SM_LIMIT=%d", t.limits.Cores))
	}
	switch {
	case t.limits.Policy == "force" || t.limits.Policy == "disable":
		env = append(env, "GPU_CORE_UTILIZATION_POLICY="+t.limits.Policy)
	case t.kind == Other:
		env = append(env, "GPU_CORE_UTILIZATION_POLICY=force")
	}
	return env
}

// environment is what a program of the tenant gets beside the machine's own.
func (t *Tenant) environment() (env []string, preload string) {
	switch t.kind {
	case Ours:
		preload = t.machine.Library
		if !t.machine.Namespaces && !t.limits.None {
			env = t.variables(t.Region())
		}
	case Other:
		preload = filepath.Join(t.vgpu(), "libvgpu.so")
		path := t.Region()
		if t.machine.Namespaces {
			preload, path = limitsDir+"/libvgpu.so", regionDir+"/"+region
		}
		env = t.variables(path)
	}
	return append(env, t.limits.Env...), preload
}

// Command is a program that will run in the tenant and is killed with ctx.
func (t *Tenant) Command(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	env, preload := t.environment()
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("find program %s: %w", program, err)
	}
	attributes := &syscall.SysProcAttr{Setpgid: true}
	if (t.kind != Bare || t.limits.Enter) && t.machine.Namespaces {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program: %w", err)
		}
		attributes.Unshareflags = syscall.CLONE_NEWNS
		if t.limits.Processes {
			attributes.Cloneflags = syscall.CLONE_NEWPID
		}
		args = append([]string{enterWord, t.dir, preload, path}, args...)
		path, preload = self, ""
	} else if t.limits.Processes {
		return nil, errors.New("this machine allows no namespaces")
	}
	if preload != "" {
		env = append(env, "LD_PRELOAD="+preload)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(append(os.Environ(), t.machine.Env...), env...)
	cmd.SysProcAttr, cmd.WaitDelay = attributes, grace
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd, nil
}

// Run waits for a program and returns what it printed on both streams. The error
// holds the last line of it.
func (t *Tenant) Run(ctx context.Context, program string, args ...string) (string, error) {
	cmd, err := t.Command(ctx, program, args...)
	if err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w", filepath.Base(program), strings.Join(args, " "), err)
		if last := lastLine(string(out)); last != "" {
			err = fmt.Errorf("%w: %s", err, last)
		}
		return string(out), err
	}
	return string(out), nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}
