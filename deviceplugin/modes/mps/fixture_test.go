// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/sharing"
)

// fakeHost is a machine with devices and a control program, both in memory, and a file
// system in a temporary directory.
type fakeHost struct {
	root, directories, library string
	latest                     *modestest.Crashing
	restarts                   chan Restart
	multiUser, partitions      bool
	// Root is served unless noRoot.
	multiNamespace, noRoot, readOnlyPipe bool

	mu       sync.Mutex
	daemons  map[string]*fakeDaemon // by directory
	starts   int
	modes    map[sharing.DeviceID]driver.ComputeMode
	forbid   error // what SetComputeMode answers
	noStart  error // what Start answers
	noModes  error // what ComputeMode answers
	mute     error // what Tell answers
	muteOnly int   // the process that answers so; 0 is any
	commands []string
	stubborn bool                  // daemons keep a percentage of 1
	bounds   map[string]host.Bound // by directory
	noSpace  error                 // what Limit answers
	emptied  []string
	ended    map[int]string // how processes ended, as far as somebody knows
}

// fakeDaemon refuses what the real one refuses.
type fakeDaemon struct {
	pid        int
	device     sharing.DeviceID
	multiUser  bool
	memory     string
	percentage float64
	clients    []int
	// partitioned daemons have 27 chunks, of which parts are given, by number.
	partitioned bool
	parts       map[int]int
}

func newHost(t *testing.T) *fakeHost {
	t.Helper()
	dir := t.TempDir()
	h := &fakeHost{
		root: filepath.Join(dir, "state"), directories: filepath.Join(dir, "run", "mps"), library: filepath.Join(dir, "libvgpu.so"),
		daemons: map[string]*fakeDaemon{}, modes: map[sharing.DeviceID]driver.ComputeMode{}, restarts: make(chan Restart, 100), bounds: map[string]host.Bound{},
	}
	for path, text := range map[string]string{h.library: "the library", filepath.Join(dir, "deviceshare-hook"): "the hook"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// process is a device plugin that may die: everything it does goes through the
// crashing file system.
type process struct {
	*fakeHost
	dying *modestest.Crashing
}

func (h *fakeHost) at(at int, late bool) *Preparer {
	h.latest = &modestest.Crashing{Under: host.OS{}, At: at, Late: late}
	p := process{h, h.latest}
	return New(Config{
		Files: h.latest, Root: h.root, Directories: h.directories, Library: h.library, Control: p, Hardware: p, Space: p, Shm: 64 * sharing.MiB, ShmMost: 8 * sharing.GiB,
		Tenants:    Tenants{MultiUser: h.multiUser, MultiNamespace: h.multiNamespace, RootUser: !h.noRoot, ReadOnlyPipe: h.readOnlyPipe},
		Partitions: h.partitions, Restarted: func(r Restart) { h.restarts <- r },
	})
}

func (h *fakeHost) fresh() *Preparer { return h.at(-1, false) }

func (h *fakeHost) Preparer(at int, late bool) modes.Preparer { return h.at(at, late) }

func (h *fakeHost) Effects() int { return h.latest.Effects() }

// Reboot loses what a machine loses: processes, compute modes and /run.
func (h *fakeHost) Reboot() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.daemons, h.modes, h.starts = map[string]*fakeDaemon{}, map[sharing.DeviceID]driver.ComputeMode{}, 0
	h.bounds = map[string]host.Bound{}
	_ = os.RemoveAll(h.directories)
}

// State lists files with mode and content, the directories of daemons, daemons
// with their defaults, and compute modes.
func (h *fakeHost) State() string {
	var b strings.Builder
	for _, top := range []string{h.root, h.directories} {
		_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			info, _ := d.Info()
			rel, _ := filepath.Rel(top, path)
			if d.IsDir() && !strings.Contains(rel, "/") && !strings.HasPrefix(rel, "GPU-") {
				return nil // made once, and empty
			}
			fmt.Fprintf(&b, "%s %v", rel, info.Mode())
			if !d.IsDir() {
				text, _ := os.ReadFile(path)
				fmt.Fprintf(&b, " %q", text)
			}
			b.WriteString("\n")
			return nil
		})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, dir := range slices.Sorted(maps.Keys(h.daemons)) {
		fmt.Fprintf(&b, "daemon %+v\n", *h.daemons[dir])
	}
	for _, dir := range slices.Sorted(maps.Keys(h.bounds)) {
		rel, _ := filepath.Rel(h.directories, dir)
		bound := h.bounds[dir]
		if bound.AtLeast {
			bound.Size = 0 // it depends on who was there before
		}
		fmt.Fprintf(&b, "bound of %s %+v\n", rel, bound)
	}
	for _, id := range slices.Sorted(maps.Keys(h.modes)) {
		if h.modes[id] != driver.DefaultComputeMode {
			fmt.Fprintf(&b, "mode of %s %d\n", id, h.modes[id])
		}
	}
	return b.String()
}

// kill ends the daemon of a device as a signal does.
func (h *fakeHost) kill(id sharing.DeviceID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.daemons, filepath.Join(h.directories, string(id)))
}

func (h *fakeHost) daemonOf(id sharing.DeviceID) *fakeDaemon {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.daemons[filepath.Join(h.directories, string(id))]
}

// Start implements Control.
func (p process) Start(_ context.Context, d Daemon) error {
	return p.dying.Effect(func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, dir := range []string{d.Pipe(), d.Log(), d.Shm()} {
			if info, err := os.Stat(dir); err != nil || !info.IsDir() {
				return fmt.Errorf("no directory %s", dir)
			}
		}
		if p.bounds[d.Shm()].Size == 0 || p.bounds[d.Pipe()].Size == 0 {
			return errors.New("the containers' directories have no limit")
		}
		switch {
		case p.noStart != nil:
			return p.noStart
		case p.daemons[d.Dir] != nil:
			return errors.New("an instance of this daemon is already running")
		}
		p.starts++
		p.daemons[d.Dir] = &fakeDaemon{pid: 100 + p.starts, device: d.Device, multiUser: d.MultiUser, partitioned: d.Partitioned, parts: map[int]int{}, percentage: 100}
		return nil
	})
}

// PID implements Control.
func (p process) PID(d Daemon) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := p.daemons[d.Dir]; x != nil {
		return x.pid
	}
	return 0
}

// Lives implements Control.
func (p process) Lives(d Daemon, pid int) bool { return p.PID(d) == pid }

// Ending implements Control.
func (p process) Ending(_ context.Context, _ Daemon, pid int) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	how, known := p.ended[pid]
	return how, known
}

// Kill implements Control.
func (p process) Kill(_ context.Context, d Daemon, pid int) error {
	return p.dying.Effect(func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if x := p.daemons[d.Dir]; x == nil || x.pid != pid {
			return fmt.Errorf("process %d is not that daemon", pid)
		}
		delete(p.daemons, d.Dir)
		return nil
	})
}

// Limit implements Space.
func (p process) Limit(dir string, b host.Bound) error {
	return p.dying.Effect(func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, err := os.Stat(dir); err != nil {
			return err
		}
		if have := p.bounds[dir]; p.noSpace == nil && !(b.AtLeast && have.Size > b.Size) {
			p.bounds[dir] = b
		}
		return p.noSpace
	})
}

// Detach implements Space.
func (p process) Detach(dir string) error { return p.Release(dir) }

// Put implements Space.
func (p process) Put(shelf, name string, content []byte, mode fs.FileMode) error {
	return p.dying.Effect(func() error { return (&modestest.Rooms{}).Put(shelf, name, content, mode) })
}

// Drop implements Space.
func (p process) Drop(shelf, name string) error {
	return p.dying.Effect(func() error { return (&modestest.Rooms{}).Drop(shelf, name) })
}

// Release implements Space.
func (p process) Release(dir string) error {
	return p.dying.Effect(func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.bounds, dir)
		return nil
	})
}

// Empty implements Space.
func (p process) Empty(dir string, b host.Bound) error {
	return p.dying.Effect(func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if have, there := p.bounds[dir]; there && have.Size > b.Size {
			have.Size = b.Size
			p.bounds[dir] = have
		}
		p.emptied = append(p.emptied, dir)
		return Tmpfs{}.Empty(dir, b)
	})
}

// Trim implements Space.
func (p process) Trim(dir string, most sharing.Bytes) error { return Tmpfs{}.Trim(dir, most) }

// Tell implements Control. Questions are no effects.
func (p process) Tell(_ context.Context, d Daemon, command string) (answer string, err error) {
	do := func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		x := p.daemons[d.Dir]
		if x == nil {
			return errors.New("cannot find MPS control daemon process")
		}
		if p.mute != nil && (p.muteOnly == 0 || p.muteOnly == x.pid) {
			return p.mute
		}
		p.commands = append(p.commands, command)
		answer = x.obey(strings.Fields(command))
		if p.stubborn {
			x.percentage = 1
		}
		if command == "quit" {
			delete(p.daemons, d.Dir)
		}
		return nil
	}
	if strings.HasPrefix(command, "get_") || command == "lspart" {
		return answer, errors.Join(do(), p.crashed())
	}
	err = p.dying.Effect(do)
	return answer, err
}

func (p process) crashed() error {
	if p.dying.Dead() {
		return modestest.ErrCrash
	}
	return nil
}

func (x *fakeDaemon) obey(words []string) string {
	switch words[0] {
	case "set_default_device_pinned_mem_limit":
		if words[1] != "0" || !strings.HasSuffix(words[2], "M") {
			return "Invalid device or limit\n"
		}
		x.memory = words[2]
	case "set_default_active_thread_percentage":
		n, err := strconv.ParseFloat(words[1], 64)
		if err != nil || n <= 0 || n > 100 {
			return "Invalid active thread percentage\n"
		}
		x.percentage = n
	case "get_default_active_thread_percentage":
		return fmt.Sprintf("%.1f\n", x.percentage)
	case "lspart", "sm_partition":
		return x.partition(words)
	case "get_server_list":
		if len(x.clients) > 0 {
			return "4711\n"
		}
	case "get_client_list":
		text := ""
		for _, c := range x.clients {
			text += strconv.Itoa(c) + "\n"
		}
		return text
	}
	return ""
}

func (x *fakeDaemon) partition(words []string) string {
	const all = 27
	used := 0
	for _, n := range x.parts {
		used += n
	}
	switch {
	case !x.partitioned:
		return "Failed: static partitioning mode is not enabled\n"
	case words[0] == "lspart":
		text := fmt.Sprintf("GPU Partition free chunks used chunks\n%s - %d %d %d %d\n", x.device, all-used, used, 4*(all-used), 4*used)
		for _, i := range slices.Sorted(maps.Keys(x.parts)) {
			text += fmt.Sprintf("%s %s/p%d - %d - %d\n", x.device, x.device, i, x.parts[i], 4*x.parts[i])
		}
		return text
	case words[1] == "rm":
		var i int
		if _, err := fmt.Sscanf(words[3], "p%d", &i); err != nil || x.parts[i] == 0 {
			return "Failed to remove partition: not found\n"
		}
		delete(x.parts, i)
		return "Partition removed\n"
	}
	n, err := strconv.Atoi(words[3])
	if err != nil || n <= 0 || n > all-used || words[2] != string(x.device) {
		return fmt.Sprintf("Failed to create partition: %d of %d chunks are free\n", all-used, all)
	}
	i := 0
	for x.parts[i] != 0 {
		i++
	}
	x.parts[i] = n
	return fmt.Sprintf("Partition %s/p%d created\n", x.device, i)
}

// ComputeMode implements driver.ComputeModes.
func (p process) ComputeMode(id sharing.DeviceID) (driver.ComputeMode, error) {
	crashed := p.crashed() // effects take the two locks in the other order
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.modes[id], errors.Join(p.noModes, crashed)
}

// SetComputeMode implements driver.ComputeModes.
func (p process) SetComputeMode(id sharing.DeviceID, mode driver.ComputeMode) error {
	return p.dying.Effect(func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.forbid != nil {
			return p.forbid
		}
		p.modes[id] = mode
		return nil
	})
}

// gpu is the device of the tests.
func gpu() sharing.Device {
	return sharing.Device{ID: "GPU-a", Memory: 80 * sharing.GiB, Cores: 100, Healthy: true, Mode: sharing.MPS}
}

// asks is the claim of a container with a part of the device, which runs as user 1000.
func asks(o sharing.Owner, container string) modes.Claim {
	d, user := gpu(), int64(1000)
	return modes.Claim{
		ID: string(o) + "." + container, Owner: o, Namespace: "default", Pod: "pod-" + string(o), Container: container, Priority: 1, User: &user,
		Devices: []modes.ClaimedDevice{{Device: d, Share: sharing.Share{Device: d.ID, Mode: sharing.MPS, Memory: sharing.MiBs(1000), Cores: 30}}},
	}
}

// as is a claim of a container that runs as a user.
func as(c modes.Claim, user int64) modes.Claim {
	c.User = &user
	return c
}

// ofImage is a claim of a container that runs as its image says.
func ofImage(c modes.Claim) modes.Claim {
	c.User = nil
	return c
}

// inject prepares a claim that must be served.
func inject(t *testing.T, h *fakeHost, c modes.Claim) modes.Injection {
	t.Helper()
	in, err := h.fresh().Prepare(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return in
}
