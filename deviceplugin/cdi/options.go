// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/host"
)

// Options are the flags that say what brings the driver into containers.
type Options struct {
	// Edits is nvcdi or files.
	Edits string
	// DriverFiles are HOST:CONTAINER[:rw], with Edits files.
	DriverFiles []string
	// DevRoot is the host's directory of device nodes.
	DevRoot string
	// DriverRoot is the root of the driver's installation, SeenRoot where this process
	// sees it; "" if in the same place.
	DriverRoot, SeenRoot string
	// NVML is the path of the driver's library; empty looks for it.
	NVML string
	// HookPath is nvidia-cdi-hook, as the container runtime sees it; "" is the one of the image,
	// see CarryHook.
	HookPath string
	// MIGMinors is the driver's table of numbers of capability nodes, and CapsRoot the
	// host's directory of them.
	MIGMinors, CapsRoot string
	Additional          Additional
}

// DefaultOptions are those of an installation in the usual places.
func DefaultOptions() Options {
	return Options{
		Edits: "nvcdi", DevRoot: "/dev", DriverRoot: "/",
		MIGMinors: "/proc/driver/nvidia-caps/mig-minors",
	}
}

// AddFlags adds the flags, with the values of o as defaults.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Edits, "driver-edits", o.Edits, "what brings the driver into containers: nvcdi (NVIDIA's container toolkit) or files (--driver-file and --dev-root)")
	f.StringArrayVar(&o.DriverFiles, "driver-file", nil, "HOST:CONTAINER[:rw], a file or directory mounted into every GPU container; repeatable; with --driver-edits=files")
	f.StringVar(&o.DevRoot, "dev-root", o.DevRoot, "host directory of the nvidia<N> device nodes; containers see them in /dev")
	f.StringVar(&o.DriverRoot, "driver-root", o.DriverRoot, "root of the driver installation; with --driver-edits=nvcdi")
	f.StringVar(&o.NVML, "nvml-library", "",
		"path of libnvidia-ml.so.1; empty looks for it below the driver's root, or, where that is /, as the dynamic linker does")
	f.StringVar(&o.SeenRoot, "driver-root-ctr-path", "", "where this process sees --driver-root; empty if in the same place; with --driver-edits=nvcdi")
	f.StringVar(&o.HookPath, "nvidia-cdi-hook-path", o.HookPath, "nvidia-cdi-hook on the host; empty brings the one of the image there; with --driver-edits=nvcdi")
	f.StringVar(&o.MIGMinors, "mig-minors", o.MIGMinors, "the driver's table of MIG capability node numbers")
	o.Additional.addFlags(f)
	f.StringVar(&o.CapsRoot, "caps-root", "", "host directory of the nvidia-cap<N> nodes (default <dev-root>/nvidia-caps)")
}

// Check returns every mistake at once.
func (o *Options) Check() []error {
	var wrong []error
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	for flag, path := range map[string]string{"dev-root": o.DevRoot, "mig-minors": o.MIGMinors, "caps-root": o.capsRoot()} {
		if !filepath.IsAbs(path) {
			add("--%s=%q: want an absolute path", flag, path)
		}
	}
	if o.Edits != "nvcdi" && o.Edits != "files" {
		add("--driver-edits=%q: want nvcdi or files", o.Edits)
	}
	if o.Edits == "nvcdi" && filepath.Base(o.DevRoot) != "dev" {
		add("--dev-root=%q: with --driver-edits=nvcdi its last element must be dev", o.DevRoot)
	}
	if o.Edits == "nvcdi" && len(o.DriverFiles) > 0 {
		add("--driver-file works with --driver-edits=files only")
	}
	if _, err := o.parseDriverFiles(); err != nil {
		wrong = append(wrong, err)
	}
	return append(wrong, o.Additional.checkFlags(o.Edits)...)
}

// Library is where the driver's library is looked for.
func (o *Options) Library() driver.LibraryLocation {
	place := driver.LibraryLocation{Path: o.NVML}
	if root := o.Seen(); root != "/" {
		place.Root = root
	}
	return place
}

// Seen is the root of the driver's installation as this process sees it.
func (o *Options) Seen() string {
	if o.SeenRoot != "" {
		return o.SeenRoot
	}
	return o.DriverRoot
}

func (o *Options) capsRoot() string {
	if o.CapsRoot == "" {
		return filepath.Join(o.DevRoot, "nvidia-caps")
	}
	return o.CapsRoot
}

func (o *Options) parseDriverFiles() ([]DriverFile, error) {
	files := make([]DriverFile, 0, len(o.DriverFiles))
	for _, text := range o.DriverFiles {
		f, err := ParseDriverFile(text)
		if err != nil {
			return nil, fmt.Errorf("--driver-file: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

// hook is NVIDIA's program that prepares a container for the driver's files.
const hook = "nvidia-cdi-hook"

// CarryHook copies the hook from a directory of the image to one that the container runtime sees
// under the same path, unless one of the host is named: specifications and hook are of one version
// then. The container runtime would run an old one beside new specifications, or none at all.
func (o *Options) CarryHook(files host.Files, from, to string) error {
	if o.Edits != "nvcdi" || o.HookPath != "" {
		return nil
	}
	content, err := files.Read(filepath.Join(from, hook))
	if err != nil {
		return fmt.Errorf("bring %s to the host: the image has none: %w (--nvidia-cdi-hook-path)", hook, err)
	}
	path := filepath.Join(to, "hook", hook)
	if _, err := host.WriteIfChanged(files, path, content, 0o755, 0o755); err != nil {
		return fmt.Errorf("bring %s to the host: %w (--state-dir)", hook, err)
	}
	o.HookPath = path
	return nil
}

// NewBase makes what brings the driver into containers. forget drops what it learned
// about the driver's files; it is nil where nothing is learned. The observer is told of additional
// nodes that are missing, from within this call on.
func (o *Options) NewBase(gpus driver.Driver, minors Minors, observer NodesObserver) (base Base, forget func(), err error) {
	mig := Capabilities{Minors: o.MIGMinors, Root: o.capsRoot(), Devices: gpus, Maker: &NodeMaker{Drivers: "/proc/devices"}}
	if o.Edits == "nvcdi" {
		real, ok := gpus.(*driver.NVML)
		if !ok {
			return nil, nil, errors.New("--driver-edits=nvcdi needs the real driver")
		}
		source := &nvidia{cfg: ToolkitConfig{
			DriverRoot: o.DriverRoot, SeenRoot: o.SeenRoot, DevRoot: filepath.Dir(o.DevRoot), HookPath: o.HookPath, Library: real, MIG: mig,
		}}
		toolkit := newToolkit(source)
		return withAdditional(toolkit, &o.Additional, source, observer), toolkit.Forget, nil
	}
	files, err := o.parseDriverFiles()
	if err != nil {
		return nil, nil, err
	}
	return &Files{DevRoot: o.DevRoot, Driver: files, Minors: minors, MIG: mig}, nil, nil
}
