// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/spf13/pflag"
	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/sharing"
)

// Additional says which nodes that belong to no GPU every container with a device gets too. By
// default it gets none: they are the same for all tenants of a node. The names are those of
// NVIDIA's own device plugin.
type Additional struct {
	// GDRCopy is /dev/gdrdrv, GDS what GPUDirect Storage needs, MOFED the nodes of RDMA adapters.
	GDRCopy, GDS, MOFED bool
	// IMEXChannels are numbers of channels over which nodes share memory.
	IMEXChannels []string
}

func (a *Additional) addFlags(f *pflag.FlagSet) {
	const too = "every container with a device gets %s too; with --driver-edits=nvcdi"
	f.BoolVar(&a.GDRCopy, "gdrcopy-enabled", a.GDRCopy, fmt.Sprintf(too, "/dev/gdrdrv"))
	f.BoolVar(&a.GDS, "gds-enabled", a.GDS, fmt.Sprintf(too, "/dev/nvidia-fs*, and /etc/cufile.json and /run/udev to read,"))
	f.BoolVar(&a.MOFED, "mofed-enabled", a.MOFED, fmt.Sprintf(too, "/dev/infiniband/uverbs* and rdma_cm"))
	f.StringSliceVar(&a.IMEXChannels, "imex-channel-ids", a.IMEXChannels, fmt.Sprintf(too, "/dev/nvidia-caps-imex-channels/channel<N> for each of these numbers"))
}

func (a *Additional) checkFlags(edits string) []error {
	var wrong []error
	seen := map[string]bool{}
	for i, id := range a.IMEXChannels {
		n, err := strconv.ParseUint(id, 10, 16)
		switch {
		case err != nil || strconv.FormatUint(n, 10) != id:
			wrong = append(wrong, fmt.Errorf("--imex-channel-ids[%d]=%q: want a number from 0 to 65535", i, id))
		case seen[id]:
			wrong = append(wrong, fmt.Errorf("--imex-channel-ids[%d]=%q: it is there twice", i, id))
		}
		seen[id] = true
	}
	if edits != "nvcdi" && len(a.enabledKinds()) > 0 {
		wrong = append(wrong, errors.New("--gdrcopy-enabled, --gds-enabled, --mofed-enabled and --imex-channel-ids work with --driver-edits=nvcdi only"))
	}
	return wrong
}

// nodeKind is one kind of nodes.
type nodeKind struct {
	mode nvcdi.Mode
	// device is the toolkit's name for the nodes.
	device string
	// flag asked for it; nodes are what it gives, and help brings them to a node.
	flag, nodes, help string
}

func (a *Additional) enabledKinds() []nodeKind {
	var out []nodeKind
	for _, k := range []struct {
		on   bool
		want nodeKind
	}{
		{a.GDRCopy, nodeKind{nvcdi.ModeGdrcopy, "all", "--gdrcopy-enabled", "/dev/gdrdrv", "load the module gdrdrv"}},
		{a.GDS, nodeKind{nvcdi.ModeGds, "all", "--gds-enabled", "/dev/nvidia-fs*", "load the module nvidia-fs"}},
		{a.MOFED, nodeKind{nvcdi.ModeMofed, "all", "--mofed-enabled", "/dev/infiniband/uverbs* nor rdma_cm", "load the modules ib_uverbs and rdma_cm"}},
	} {
		if k.on {
			out = append(out, k.want)
		}
	}
	for _, id := range a.IMEXChannels {
		out = append(out, nodeKind{nvcdi.ModeImex, id, "--imex-channel-ids", "/dev/nvidia-caps-imex-channels/channel" + id,
			"make it with nvidia-modprobe, or NVreg_CreateImexChannel0=1"})
	}
	return out
}

// NodesObserver is told whether the additional nodes are there.
type NodesObserver interface {
	// NodesMissing takes in which of the nodes that containers are meant to get are not on this
	// node; nil if all are there. Containers start without them. It is called when that changes.
	NodesMissing(err error)
}

// nodeSource finds the nodes of one kind; nil edits if there are none.
type nodeSource interface {
	nodeEdits(w nodeKind) (*specs.ContainerEdits, error)
}

// additional is a base whose containers get additional nodes. They are looked for each time: that
// costs a look into /dev, and a module may be loaded at any time.
type additional struct {
	Base
	wants    []nodeKind
	source   nodeSource
	observer NodesObserver

	mu      sync.Mutex // held while looking, so that what is told last is what was seen last
	missing string     // as it was told last
}

func withAdditional(base Base, a *Additional, source nodeSource, observer NodesObserver) Base {
	wants := a.enabledKinds()
	if len(wants) == 0 {
		return base
	}
	out := &additional{Base: base, wants: wants, source: source, observer: observer}
	out.findNodes() // so that people hear of what is missing before a pod lacks it
	return out
}

func (a *additional) Edits(ctx context.Context, devices []sharing.DeviceID) (*specs.ContainerEdits, error) {
	base, err := a.Base.Edits(ctx, devices)
	if err != nil {
		return nil, err
	}
	edits := *base // its lists are not changed
	for _, found := range a.findNodes() {
		edits.DeviceNodes = append(edits.DeviceNodes[:len(edits.DeviceNodes):len(edits.DeviceNodes)], found.DeviceNodes...)
		edits.Mounts = append(edits.Mounts[:len(edits.Mounts):len(edits.Mounts)], found.Mounts...)
	}
	return &edits, nil
}

func (a *additional) findNodes() []*specs.ContainerEdits {
	a.mu.Lock()
	defer a.mu.Unlock()
	var found []*specs.ContainerEdits
	var missing []error
	for _, w := range a.wants {
		switch edits, err := a.source.nodeEdits(w); {
		case err != nil:
			missing = append(missing, fmt.Errorf("%s: look for %s: %w", w.flag, w.nodes, err))
		case edits == nil:
			missing = append(missing, fmt.Errorf("%s: this node has no %s, and containers start without: %s, or take the flag away", w.flag, w.nodes, w.help))
		default:
			found = append(found, edits)
		}
	}
	a.reportMissing(errors.Join(missing...))
	return found
}

// reportMissing tells what is missing if it is something else than before. The lock is held.
func (a *additional) reportMissing(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != a.missing {
		a.missing = text
		a.observer.NodesMissing(err)
	}
}

// noDriver is a driver's library that is not there. The toolkit asks each for its version.
type noDriver struct{ gonvml.Interface }

func (noDriver) Init() gonvml.Return { return gonvml.ERROR_LIBRARY_NOT_FOUND }

// nodeEdits implements nodeSource. The driver is not asked, so a driver that hangs keeps nobody.
func (n *nvidia) nodeEdits(w nodeKind) (*specs.ContainerEdits, error) {
	root := cmp.Or(n.cfg.SeenRoot, n.cfg.DriverRoot)
	if w.mode == nvcdi.ModeMofed {
		root = n.cfg.DevRoot // in this mode the toolkit looks for nodes there
	}
	lib, err := nvcdi.New(
		nvcdi.WithLogger(toolkitLog{}), nvcdi.WithNvmlLib(noDriver{}),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils),
		nvcdi.WithDriverRoot(root), nvcdi.WithDevRoot(n.cfg.DevRoot),
		nvcdi.WithNVIDIACDIHookPath(n.cfg.HookPath), nvcdi.WithMode(w.mode),
		nvcdi.WithVendor(vendor), nvcdi.WithClass(class),
	)
	if err != nil {
		return nil, fmt.Errorf("start the container toolkit: %w", err)
	}
	// A channel that is named is not looked for, so all are asked for.
	devices, err := lib.GetDeviceSpecsByID("all")
	if err != nil {
		return nil, err
	}
	for i := range devices {
		if devices[i].Name != w.device || len(devices[i].ContainerEdits.DeviceNodes) == 0 {
			continue
		}
		edits, err := n.asHostSees(&devices[i].ContainerEdits)
		if err != nil {
			return nil, err
		}
		return edits.ContainerEdits, nil
	}
	return nil, nil
}
