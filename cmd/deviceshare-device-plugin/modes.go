// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/prometheus/procfs"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/limits"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/factory"
	"deviceshare/deviceplugin/modes/mps"
	"deviceshare/deviceplugin/modes/mps/keeper"
	"deviceshare/deviceplugin/modes/timeslicing"
	"deviceshare/deviceplugin/node"
	"deviceshare/deviceplugin/oversight"
	"deviceshare/sharing"
)

// modeFlags are the flags that say what the modes of this node work with.
type modeFlags struct {
	// StateDir is where preparers keep their files, and LibraryDir where libvgpu.so is.
	StateDir, LibraryDir string
	// PlacementKeys is the directory of the keys that vouch for placements; "" checks nothing.
	PlacementKeys string
	// Unlimited says what becomes of containers with a process that goes past libvgpu.so.
	Unlimited string
	// Audit is who may use devices without a share.
	Audit oversight.Exemptions
	// Isolation is which pods may have devices, in whatever mode.
	Isolation isolationFlags
	// Contested says what becomes of devices that others offer, too.
	Contested string
	// TimeSlice is how long a process has a device in mode time-slicing at a time: ""
	// changes nothing.
	TimeSlice string
	// MPSControl is NVIDIA's control program.
	MPSControl, MPSRoot string
	// MPSKeeper is the socket of the keeper that starts MPS daemons; "" starts them here.
	MPSKeeper  string
	MPSTenants tenantFlags
	MPSCompute string
	MPSShm     resource.QuantityValue
}

// defaultModeFlags are those of an installation in the usual places.
func defaultModeFlags() modeFlags {
	return modeFlags{
		StateDir: "/var/lib/deviceshare", LibraryDir: "/opt/deviceshare",
		Unlimited: "end",
		// NVIDIA's MPS server may be a program of the host.
		Audit:      oversight.Exemptions{Programs: []string{"nvidia-cuda-mps"}},
		Isolation:  defaultIsolationFlags(),
		Contested:  "refuse",
		MPSControl: "nvidia-cuda-mps-control", MPSRoot: "/run/nvidia/mps", MPSTenants: defaultTenantFlags(), MPSCompute: "percentage",
		MPSShm: resource.QuantityValue{Quantity: resource.MustParse("1Gi")}, // see docs/mps.md
	}
}

func (m *modeFlags) addFlags(f *pflag.FlagSet) {
	m.Isolation.addFlags(f)
	f.StringVar(&m.StateDir, "state-dir", m.StateDir, "where this plugin keeps its files; the same path for the container runtime")
	f.StringVar(&m.LibraryDir, "library-dir", m.LibraryDir, "directory that holds libvgpu.so; each container gets a copy below --state-dir")
	f.StringVar(&m.PlacementKeys, "placement-keys", "",
		"directory of public keys (PEM): a container starts only if the holder of one of them signed its pod's placement; empty checks nothing")
	f.StringVar(&m.Unlimited, "unlimited-processes", m.Unlimited,
		"what becomes of a container with a share of which a process uses the device without libvgpu.so: end (it is killed), or tell (an event says so)")
	f.StringVar(&m.Contested, "contested-devices", m.Contested,
		"what becomes of a device that another device plugin or a DRA driver of the node offers, too: refuse (no new pods), or tell (an event says so)")
	f.StringSliceVar(&m.Audit.Namespaces, "audit-exempt-namespaces", m.Audit.Namespaces,
		"namespaces whose pods may use devices without a share and are not told about: that of this program, of monitoring")
	f.StringSliceVar(&m.Audit.ServiceAccounts, "audit-exempt-service-accounts", m.Audit.ServiceAccounts,
		"service accounts, as namespace/name, whose pods may use devices without a share and are not told about")
	f.StringSliceVar(&m.Audit.Programs, "audit-exempt-programs", m.Audit.Programs,
		"programs of the host, by the first 15 letters of their names, that may use devices and are not told about")
	f.StringVar(&m.MPSControl, "mps-control", m.MPSControl, "NVIDIA's MPS control program: a path, or a name below the driver's root or on PATH")
	f.StringVar(&m.MPSRoot, "mps-root", m.MPSRoot, "where MPS daemons and their clients meet; the same path for the container runtime")
	f.Var(&m.MPSShm, "mps-shm-size",
		"how much a pod in mode mps can have in /dev/shm that has no limit of memory and no volume there; the pods of a device share what they have")
	m.MPSTenants.addFlags(f)
	f.StringVar(&m.MPSCompute, "mps-compute", m.MPSCompute,
		"how vgpu-cores is held in mode mps: percentage (a cap) or partition (reserved multiprocessors, where the control program is of CUDA 13.1 or later)")
	f.StringVar(&m.MPSKeeper, "mps-keeper-socket", "",
		"socket of the keeper (subcommand keep), which MPS daemons are started by and outlive this process with; empty starts them as children of this process, and they end with its container")
	f.StringVar(&m.TimeSlice, "time-slice", "", "how long a process has a device in mode time-slicing at a time: default, short, medium or long (set by nvidia-smi); empty changes nothing")
}

func (m *modeFlags) findMistakes() []error {
	wrong := m.Isolation.findMistakes()
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if m.MPSKeeper != "" && !filepath.IsAbs(m.MPSKeeper) {
		add("--mps-keeper-socket=%q: want an absolute path", m.MPSKeeper)
	}
	if m.PlacementKeys != "" && !filepath.IsAbs(m.PlacementKeys) {
		add("--placement-keys=%q: want an absolute path", m.PlacementKeys)
	}
	for flag, path := range map[string]string{"state-dir": m.StateDir, "library-dir": m.LibraryDir, "mps-root": m.MPSRoot} {
		if !filepath.IsAbs(path) {
			add("--%s=%q: want an absolute path", flag, path)
		}
	}
	if _, err := timeslicing.ParseSlice(m.TimeSlice); m.TimeSlice != "" && err != nil {
		add("--time-slice: %w", err)
	}
	if m.Unlimited != "end" && m.Unlimited != "tell" {
		add("--unlimited-processes=%q: want end or tell", m.Unlimited)
	}
	if m.Contested != "refuse" && m.Contested != "tell" {
		add("--contested-devices=%q: want refuse or tell", m.Contested)
	}
	if m.MPSCompute != "percentage" && m.MPSCompute != "partition" {
		add("--mps-compute=%q: want percentage or partition", m.MPSCompute)
	}
	if m.MPSShm.Cmp(resource.MustParse("1Mi")) < 0 {
		add("--mps-shm-size=%q: want 1Mi or more", m.MPSShm.String())
	}
	return append(wrong, m.MPSTenants.findMistakes()...)
}

// makePreparers returns the node halves of the modes that this node serves. root is that
// of the driver's installation as this process sees it; given reports whether the
// administrator gave a device its mode; died is told about MPS daemons.
func (m *modeFlags) makePreparers(d driver.Driver, root string, given func(sharing.DeviceID) bool, died func(mps.Restart)) ([]modes.Preparer, error) {
	labels, err := host.LabelsOf(procfs.DefaultMountPoint)
	if err != nil {
		return nil, err
	}
	klog.InfoS("files for containers", "selinux", labels != nil)
	memory, err := nodeMemory()
	if err != nil {
		return nil, err
	}
	space := host.Tmpfs{Labels: labels}
	config := factory.Config{
		Files: host.OS{Labels: labels}, Space: space, StateDir: m.StateDir, LibraryDir: m.LibraryDir, MIG: d,
		MPS: m.configureMPS(d, root, mps.Tmpfs{Tmpfs: space}, memory, died), Given: given,
		Note: func(id sharing.DeviceID, what string) { klog.InfoS("hardware changed", "device", id, "what", what) },
	}
	if m.TimeSlice != "" {
		step, err := timeslicing.ParseSlice(m.TimeSlice)
		if err != nil {
			return nil, fmt.Errorf("--time-slice: %w", err)
		}
		tool, err := timeslicing.FindSMI(root)
		if err != nil {
			return nil, fmt.Errorf("--time-slice=%s: %w", m.TimeSlice, err)
		}
		config.TimeSlice, config.TimeSliceStep = tool, step
	}
	return factory.New(config), nil
}

func (m *modeFlags) keeperClient() keeper.Client {
	return keeper.Client{Socket: m.MPSKeeper, Directories: filepath.Clean(m.MPSRoot)}
}

// watchKeeper takes mode mps out of service while the keeper, if the flags name one, cannot start
// MPS daemons. When it returns it has asked once; it asks again as long as ctx lasts.
func (m *modeFlags) watchKeeper(ctx context.Context, group *errgroup.Group, a *agent.Agent) {
	if m.MPSKeeper != "" {
		a.WatchService(ctx, group, sharing.MPS, m.keeperClient())
	}
}

func nodeMemory() (sharing.Bytes, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, fmt.Errorf("look how much memory the node has: %w", err)
	}
	info, err := fs.Meminfo()
	if err != nil || info.MemTotalBytes == nil {
		return 0, fmt.Errorf("look how much memory the node has: %w", errors.Join(err, errors.ErrUnsupported))
	}
	return sharing.Bytes(min(*info.MemTotalBytes, uint64(sharing.MaxBytes))), nil //nolint:gosec // bounded
}

// configureMPS is what mode mps needs on a node with so much memory. Without the control program
// the mode is not served, and devices in it are published as unusable with that reason.
func (m *modeFlags) configureMPS(d driver.Driver, root string, space mps.Space, memory sharing.Bytes, died func(mps.Restart)) mps.Config {
	program, err := mps.FindProgram(m.MPSControl, root)
	if err != nil {
		klog.InfoS("mode mps is not served (--mps-control)", "why", err)
		return mps.Config{}
	}
	if m.MPSKeeper == "" {
		klog.InfoS("MPS daemons are children of this process, and end with its container if it runs in one (--mps-keeper-socket)")
	} else {
		program.Keeper = m.keeperClient()
	}
	return mps.Config{
		Control: program, Hardware: d, Partitions: m.MPSCompute == "partition" && knowsPartitions(program),
		Space: space, Shm: sharing.Bytes(m.MPSShm.Value()), ShmMost: memory / 2, // as a tmpfs has by itself
		Directories: filepath.Clean(m.MPSRoot), Tenants: m.MPSTenants.forPreparer(), Restarted: died,
	}
}

// knowsPartitions asks the control program. Where it knows none, compute is held by
// percentages, and that is told.
func knowsPartitions(program mps.Program) bool {
	known, err := program.KnowsPartitions(context.Background())
	if !known {
		klog.ErrorS(err, "the MPS control program knows no static partitions; mode mps caps compute by percentages instead (--mps-compute)")
	}
	return known
}

// abandonNode takes away what no device plugin will look after any more, when they are uninstalled.
// Containers that run keep what they have.
func abandonNode(state node.State, preparers []modes.Preparer) {
	if !state.IsFinal() {
		return
	}
	for _, x := range preparers {
		if a, ok := x.(modes.Abandoner); ok {
			if err := a.Abandon(); err != nil {
				klog.ErrorS(err, "something is left on the node", "mode", x.Mode())
			}
		}
	}
}

// findUnserved looks which modes this node cannot serve, whatever its devices can, and why: those
// that put the library into containers, where these could not load it.
func (m *modeFlags) findUnserved() map[sharing.Mode]string {
	out := map[sharing.Mode]string{}
	for _, mode := range []sharing.Mode{sharing.HAMiCore, sharing.MPS} {
		if err := m.checkLibrary(mode); err != nil {
			klog.ErrorS(err, "containers would run without limits; the mode is not served until that is mended", "mode", mode)
			out[mode] = err.Error()
		}
	}
	return out
}

// checkLibrary returns why containers could not load the library that a mode gives them.
func (m *modeFlags) checkLibrary(mode sharing.Mode) error {
	return limits.Loadable(host.OS{}, host.OS{}, filepath.Join(m.StateDir, string(mode)), filepath.Join(m.LibraryDir, "libvgpu.so"))
}

// findPowers returns what a node with these preparers can do, but for the modes that it does not
// serve.
func (m *modeFlags) findPowers(preparers []modes.Preparer, unserved map[sharing.Mode]string) node.Powers {
	powers := node.Powers{Switches: true, MPS: m.MPSTenants.forScheduler(), Unserved: unserved}
	for _, x := range preparers {
		if _, not := unserved[x.Mode()]; !not {
			powers.Serves = append(powers.Serves, x.Mode())
		}
		if _, is := x.(modes.Switcher); is {
			powers.Switched = append(powers.Switched, x.Mode())
		}
	}
	return powers
}
