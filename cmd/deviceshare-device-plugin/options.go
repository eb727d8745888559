// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing/timeslicing/timeslicingnode"
)

// options are the flags.
type options struct {
	nodeName, kubeconfig           string
	kubeletDir                     string
	cdiDir, stateDir, libraryDir   string
	driverEdits                    string
	driverFiles                    []string
	devRoot, driverRoot, seenRoot  string
	hookPath                       string
	nvmlLibrary                    string
	migMinors, capsRoot            string
	metricsAddress                 string
	failOnInitError                bool
	memoryResources                string
	settle, healthProbe, healthMin time.Duration
	driverRetry                    time.Duration
	ignoreXIDs                     []string
	mpsControl, mpsRoot            string
	mpsUsers, mpsLauncher          string
	mpsCompute                     string
	mpsShm                         resource.QuantityValue
	timeSlice                      string
}

func defaults() *options {
	o := &options{
		nodeName: os.Getenv("NODE_NAME"), kubeletDir: "/var/lib/kubelet", cdiDir: "/var/run/cdi",
		stateDir: "/var/lib/deviceshare", libraryDir: "/usr/local/vgpu", driverEdits: "nvcdi", devRoot: "/dev",
		driverRoot: "/", hookPath: "/usr/bin/nvidia-cdi-hook", metricsAddress: ":9394", memoryResources: "auto",
		migMinors: "/proc/driver/nvidia-caps/mig-minors",
		settle:    150 * time.Millisecond, healthProbe: 5 * time.Second, healthMin: time.Minute,
		driverRetry: 10 * time.Second,
		mpsControl:  "nvidia-cuda-mps-control", mpsRoot: "/run/nvidia/mps", mpsUsers: "one", mpsCompute: "percentage",
		mpsShm: resource.QuantityValue{Quantity: resource.MustParse("64Mi")}, // as container runtimes give one container
	}
	if o.nodeName == "" {
		o.nodeName, _ = os.Hostname()
	}
	for _, xid := range node.ApplicationXIDs() {
		o.ignoreXIDs = append(o.ignoreXIDs, strconv.FormatUint(xid, 10))
	}
	// The variable of NVIDIA's device plugin: further errors to ignore.
	if more := os.Getenv("DP_DISABLE_HEALTHCHECKS"); more != "" {
		o.ignoreXIDs = append(o.ignoreXIDs, strings.Split(more, ",")...)
	}
	return o
}

func (o *options) flags(f *pflag.FlagSet) {
	f.StringVar(&o.nodeName, "node-name", o.nodeName, "name of this node's object (default $NODE_NAME, else the host name)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path of a kubeconfig; empty uses the pod's service account")
	f.StringVar(&o.kubeletDir, "kubelet-dir", o.kubeletDir, "the kubelet's root directory")
	f.StringVar(&o.cdiDir, "cdi-dir", o.cdiDir, "where the container runtime looks for CDI specifications")
	f.StringVar(&o.stateDir, "state-dir", o.stateDir, "where this plugin keeps its files; the same path for the container runtime")
	f.StringVar(&o.libraryDir, "library-dir", o.libraryDir, "directory that holds libvgpu.so")
	f.StringVar(&o.driverEdits, "driver-edits", o.driverEdits, "what brings the driver into containers: nvcdi (NVIDIA's container toolkit) or files (--driver-file and --dev-root)")
	f.StringArrayVar(&o.driverFiles, "driver-file", nil, "HOST:CONTAINER[:rw], a file or directory mounted into every GPU container; repeatable; with --driver-edits=files")
	f.StringVar(&o.devRoot, "dev-root", o.devRoot, "host directory of the nvidia<N> device nodes; containers see them in /dev")
	f.StringVar(&o.driverRoot, "driver-root", o.driverRoot, "root of the driver installation; with --driver-edits=nvcdi")
	f.StringVar(&o.seenRoot, "driver-root-ctr-path", "", "where this process sees --driver-root; empty if in the same place; with --driver-edits=nvcdi")
	f.StringVar(&o.hookPath, "nvidia-cdi-hook-path", o.hookPath, "nvidia-cdi-hook on the host; with --driver-edits=nvcdi")
	f.StringVar(&o.nvmlLibrary, "nvml-library", "", "path of libnvidia-ml.so.1; empty searches as the dynamic linker does")
	f.StringVar(&o.migMinors, "mig-minors", o.migMinors, "the driver's table of MIG capability node numbers")
	f.StringVar(&o.capsRoot, "caps-root", "", "host directory of the nvidia-cap<N> nodes (default <dev-root>/nvidia-caps)")
	f.StringVar(&o.metricsAddress, "metrics-address", o.metricsAddress, "address of /metrics and /healthz; empty serves neither")
	f.BoolVar(&o.failOnInitError, "fail-on-init-error", false, "exit when the driver cannot be opened at the start, instead of trying again")
	f.StringVar(&o.memoryResources, "memory-resources", o.memoryResources,
		"how memory and cores are offered: node-status (in the node's capacity), device-plugin (one kubelet device per unit, as before), or auto (node-status once no pod holds the latter)")
	f.DurationVar(&o.settle, "cdi-settle", o.settle, "wait after writing a CDI specification, until the runtime has seen it")
	f.DurationVar(&o.healthProbe, "health-probe", o.healthProbe, "time between looks at every device")
	f.DurationVar(&o.healthMin, "health-quiet", o.healthMin, "time without critical errors after which a device that answers is healthy again")
	f.DurationVar(&o.driverRetry, "driver-retry", o.driverRetry, "wait before the driver is opened again while it, or a device, does not answer")
	f.StringVar(&o.mpsControl, "mps-control", o.mpsControl, "NVIDIA's MPS control program: a path, or a name below the driver's root or on PATH")
	f.StringVar(&o.mpsRoot, "mps-root", o.mpsRoot, "where MPS daemons and their clients meet; the same path for the container runtime")
	f.Var(&o.mpsShm, "mps-shm-size", "how much all containers of a device in mode mps together can have in /dev/shm, and in memory of the node")
	f.StringVar(&o.mpsUsers, "mps-users", o.mpsUsers, "who shares a device in mode mps: one (containers of one user id at a time) or any (all, as clients of root's server)")
	f.StringVar(&o.mpsCompute, "mps-compute", o.mpsCompute,
		"how vgpu-cores is held in mode mps: percentage (a cap) or partition (reserved multiprocessors, where the control program is of CUDA 13.1 or later)")
	f.StringVar(&o.mpsLauncher, "mps-launcher", "", "words put before the command that starts an MPS daemon, for nodes where it would end with this container")
	f.StringVar(&o.timeSlice, "time-slice", "", "how long a process has a device in mode time-slicing at a time: default, short, medium or long (set by nvidia-smi); empty changes nothing")
	f.StringSliceVar(&o.ignoreXIDs, "ignore-xids", o.ignoreXIDs, "critical errors (XID) that say nothing about the device; all ignores every one")
}

// check returns every mistake at once.
func (o *options) check() []error {
	var wrong []error
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if o.nodeName == "" {
		add("--node-name is empty: give the name of this node's object")
	}
	for flag, path := range map[string]string{
		"kubelet-dir": o.kubeletDir, "cdi-dir": o.cdiDir, "state-dir": o.stateDir, "library-dir": o.libraryDir, "dev-root": o.devRoot, "mps-root": o.mpsRoot,
		"mig-minors": o.migMinors, "caps-root": o.capsRootOrDefault(),
	} {
		if !filepath.IsAbs(path) {
			add("--%s=%q: want an absolute path", flag, path)
		}
	}
	if o.driverEdits != "nvcdi" && o.driverEdits != "files" {
		add("--driver-edits=%q: want nvcdi or files", o.driverEdits)
	}
	if o.driverEdits == "nvcdi" && filepath.Base(o.devRoot) != "dev" {
		add("--dev-root=%q: with --driver-edits=nvcdi its last element must be dev", o.devRoot)
	}
	if o.driverEdits == "nvcdi" && len(o.driverFiles) > 0 {
		add("--driver-file works with --driver-edits=files only")
	}
	switch o.memoryResources {
	case "auto", "node-status", "device-plugin":
	default:
		add("--memory-resources=%q: want auto, node-status or device-plugin", o.memoryResources)
	}
	if _, err := timeslicingnode.ParseSlice(o.timeSlice); o.timeSlice != "" && err != nil {
		add("--time-slice: %w", err)
	}
	if o.mpsCompute != "percentage" && o.mpsCompute != "partition" {
		add("--mps-compute=%q: want percentage or partition", o.mpsCompute)
	}
	if o.mpsShm.Cmp(resource.MustParse("1Mi")) < 0 {
		add("--mps-shm-size=%q: want 1Mi or more", o.mpsShm.String())
	}
	if o.mpsUsers != "one" && o.mpsUsers != "any" {
		add("--mps-users=%q: want one or any", o.mpsUsers)
	}
	if _, err := o.parsedFiles(); err != nil {
		wrong = append(wrong, err)
	}
	if _, _, err := o.xids(); err != nil {
		wrong = append(wrong, err)
	}
	return wrong
}

// capsRootOrDefault is --caps-root.
func (o *options) capsRootOrDefault() string {
	if o.capsRoot == "" {
		return filepath.Join(o.devRoot, "nvidia-caps")
	}
	return o.capsRoot
}

// parsedFiles reads --driver-file.
func (o *options) parsedFiles() ([]cdi.DriverFile, error) {
	files := make([]cdi.DriverFile, 0, len(o.driverFiles))
	for _, text := range o.driverFiles {
		f, err := cdi.ParseDriverFile(text)
		if err != nil {
			return nil, fmt.Errorf("--driver-file: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

// xids reads --ignore-xids; all reports that every one is ignored.
func (o *options) xids() (list []uint64, all bool, err error) {
	for _, text := range o.ignoreXIDs {
		text = strings.TrimSpace(text)
		if text == "all" || text == "xids" {
			return nil, true, nil
		}
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, false, fmt.Errorf("--ignore-xids: %q is no error number", text)
		}
		list = append(list, n)
	}
	return list, false, nil
}
