// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Names of the components, as Start, Stop, Kill, Restart, WaitReady and Log take them.
const (
	APIServer         = "etcd+apiserver"
	ControllerManager = "controller-manager"
	DefaultScheduler  = "default-scheduler"
	Containerd        = "containerd"
	Kubelet           = "kubelet"
	VolcanoController = "volcano-controllers"
	Scheduler         = "scheduler"
	DevicePlugin      = "device-plugin"
	Keeper            = "keeper" // of an installation
	Webhook           = "webhook"
)

// NodeName is the name of the one real node.
const NodeName = "real-0"

// The images that every sandbox has imported. Pods that use them set imagePullPolicy to Never.
const (
	ImagePause      = "deviceshare/pause:sandbox"
	ImageCUDAClient = "deviceshare/cudaclient:sandbox"
	// ImageBare has the CUDA client, and neither a shell nor anything else.
	ImageBare = "deviceshare/bare:sandbox"
	// ImageWantsAll is ImageCUDAClient with the variable by which NVIDIA's images name every
	// device.
	ImageWantsAll = "deviceshare/wants-all:sandbox"
	// ImageHostile preloads more than anybody would read.
	ImageHostile = "deviceshare/hostile:sandbox"
)

// PreloadedByImage is a library that the /etc/ld.so.preload of ImageBare names.
const PreloadedByImage = "/opt/libkept.so"

// OldLibraries is a directory of the cudaclient image with a C library that libvgpu.so is too new
// for.
const OldLibraries = "/opt/old"

// OtherLoader is a program of the cudaclient image that starts another one, as the host's loader of
// libraries does, and reads no /etc/ld.so.preload.
const OtherLoader = "/opt/other-loader"

// DefaultTopology is two A100 cards in the format of e2e/fakegpu.
const DefaultTopology = `fakegpu 1
driver 580.95.05 cuda 13.0
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB cc=8.0 numa=0 mig=capable pci=0000:07:00.0 sms=108
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB cc=8.0 numa=1 mig=capable pci=0000:0f:00.0 sms=108
`

// DefaultSchedulerConf is the configuration that manifests/install gives the scheduler, without
// comments.
const DefaultSchedulerConf = `actions: "enqueue, allocate, consolidate, reclaim, preempt, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
    enableReclaimable: false
  - name: conformance
  - name: deviceshare
    arguments:
      deviceshare.VGPUEnable: true
      deviceshare.SchedulePolicy: fragmentation
      deviceshare.ScheduleWeight: 10
      deviceshare.KnownGeometriesCMName: volcano-vgpu-device-config
      deviceshare.KnownGeometriesCMNamespace: kube-system
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
    enableReclaimable: false
  - name: nodeorder
    arguments:
      leastrequested.weight: 0
      balancedresource.weight: 0
      imagelocality.weight: 0
`

// Options says what a cluster consists of. The zero value, after Defaults, is a whole cluster with
// two fake A100 cards on one real node, without simulated nodes.
type Options struct {
	// Repo is the root of the repository; empty means the one that holds the working directory.
	Repo string
	// State is the directory of everything that the cluster writes; empty means .sandbox/state in
	// Repo, or a directory below /tmp if that path is too long. Its path must be short enough for
	// the Unix sockets below it (at most 60 bytes).
	State string
	// Second gives a State of its own, where that is empty, to a cluster that runs beside
	// another one of the same repository.
	Second bool
	// Kubernetes is the version of API server, controller manager, Kubernetes' own scheduler and
	// the kubelets, such as "1.33.13"; empty means the one that e2e/controlplane names.
	Kubernetes string
	// NoKubelet leaves out the real node: no containerd, no kubelet, no device plugin.
	NoKubelet bool
	// NoGPU leaves out the fake GPUs: the C code is not built and the device plugin does not run.
	NoGPU bool
	// Topology is the text of the fake GPUs of the real node (see e2e/fakegpu); empty means
	// DefaultTopology.
	Topology string
	// Installed runs scheduler, device plugin and webhook as a user's cluster does: as pods that
	// the chart made, from the images, with their own accounts. Otherwise they are processes of
	// this machine.
	Installed bool
	// InstallLater, with Installed, leaves `helm install` to the caller: see Cluster.Install.
	InstallLater bool
	// SchedulerBinary replaces the scheduler that Build made; empty means this project's, or
	// Volcano's own while this project's has no source yet.
	SchedulerBinary string
	// StockScheduler runs Volcano's own scheduler in place of this project's. With Installed it is
	// the Deployment of Volcano's own chart; this project's may then come beside it.
	StockScheduler bool
	// SchedulerConf is the scheduler's configuration file; empty means DefaultSchedulerConf.
	SchedulerConf string
	// SchedulePeriod is the time between two scheduling cycles; zero means 200 ms.
	SchedulePeriod time.Duration
	// SimulatedNodes is the number of nodes without a kubelet, and SimulatedNode makes the i-th of
	// them: its name, labels, annotations and status.capacity. A nil func means plain nodes of 64
	// CPUs and 256 GiB.
	SimulatedNodes int
	SimulatedNode  func(i int) *corev1.Node
	// TopologyPolicy has the kubelet pin CPUs (static CPU manager) under this Topology Manager
	// policy, on a machine that it sees with NUMANodes NUMA nodes. Empty leaves the machine as it
	// is.
	TopologyPolicy string
	// Hollow are nodes with a kubelet and GPUs of their own whose containers nobody runs.
	Hollow []HollowNode
	// Audit makes the apiserver log requests about pods, bindings and nodes; Cluster.AuditLog reads
	// them.
	Audit bool
	// Race runs this project's own binaries built with the race detector.
	Race bool
	// NoRestart leaves components that die dead. The default is to start them again, as systemd and
	// a DaemonSet do.
	NoRestart bool
	// NoDevicePlugin and NoWebhook leave out those components.
	NoDevicePlugin bool
	NoWebhook      bool
	// Args are added to the command line of a component, by component name.
	Args map[string][]string
	// Progress gets one line per step; nil means no output.
	Progress Progress
}

// Defaults fills in what is empty and checks the rest. All mistakes are reported at once.
func (o Options) Defaults() (Options, error) {
	if o.Repo == "" {
		repo, err := findRepo()
		if err != nil {
			return o, err
		}
		o.Repo = repo
	}
	if o.State == "" {
		o.State = defaultState(o.Repo, o.Second)
	}
	o.Kubernetes = cmp.Or(o.Kubernetes, ownKubernetes)
	if o.Topology == "" {
		o.Topology = DefaultTopology
	}
	if o.SchedulerConf == "" {
		o.SchedulerConf = DefaultSchedulerConf
	}
	if o.SchedulePeriod == 0 {
		o.SchedulePeriod = 200 * time.Millisecond
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o, o.check()
}

// longestState is how many bytes the path of the state directory may have: Unix sockets lie below
// it, and their paths end at 107.
const longestState = 60

// defaultState is .sandbox/state in the repository, for a second cluster .sandbox/state2. Where
// that path is too long for sockets, it is a directory of its own below /tmp.
func defaultState(repo string, second bool) string {
	state := filepath.Join(repo, ".sandbox", "state")
	if second {
		state += "2"
	}
	if len(state) <= longestState {
		return state
	}
	sum := sha256.Sum256([]byte(state))
	return "/tmp/deviceshare-" + hex.EncodeToString(sum[:6])
}

// check reports every mistake of filled-in options.
func (o Options) check() error {
	var errs []error
	if !filepath.IsAbs(o.State) {
		errs = append(errs, fmt.Errorf("state directory %q: must be an absolute path", o.State))
	}
	if len(o.State) > longestState {
		errs = append(errs, fmt.Errorf("state directory %q: longer than 60 bytes, sockets below it would not fit; choose a shorter path", o.State))
	}
	if !kubernetesVersion.MatchString(o.Kubernetes) {
		errs = append(errs, fmt.Errorf("Kubernetes %q: want a version with its patch, such as %s", o.Kubernetes, ownKubernetes))
	}
	if o.SimulatedNodes < 0 {
		errs = append(errs, fmt.Errorf("%d simulated nodes: must not be negative", o.SimulatedNodes))
	}
	if o.StockScheduler && o.SchedulerBinary != "" {
		errs = append(errs, errors.New("stock scheduler and scheduler binary: choose one"))
	}
	if o.Installed && o.NeedsProcesses() {
		errs = append(errs, errors.New("installed: the chart installs the whole product, on a real node with GPUs; leave out none of it and replace none of it"))
	}
	if o.InstallLater && !o.Installed {
		errs = append(errs, errors.New("install later: it is a chart that is installed later; set Installed too"))
	}
	if len(o.Hollow) > 0 && !o.Installed {
		errs = append(errs, errors.New("hollow nodes: the chart's DaemonSet says which of them have a device plugin; set Installed"))
	}
	return errors.Join(errs...)
}

// NeedsProcesses reports whether the options ask for what an installation is not: only a part of
// the product, another scheduler, or programs that no image has.
func (o Options) NeedsProcesses() bool {
	return o.NoKubelet || o.NoGPU || o.NoDevicePlugin || o.StockScheduler && !o.InstallLater || o.SchedulerBinary != "" || o.Race
}

// hasDevicePlugin reports whether the real node gets a device plugin.
func (o Options) hasDevicePlugin() bool { return !o.NoKubelet && !o.NoGPU && !o.NoDevicePlugin }

// findRepo walks up from the working directory to the go.mod of module deviceshare.
func findRepo() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for d := dir; ; d = filepath.Dir(d) {
		if isRepo(d) {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("find the repository: neither %s nor a directory above it holds this project; run it inside a clone", dir)
		}
	}
}

// isRepo tells the root of the repository from the modules nested in it by the folder of the
// control plane.
func isRepo(dir string) bool {
	for _, f := range []string{"go.mod", "e2e/controlplane/go.mod"} {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			return false
		}
	}
	return true
}
