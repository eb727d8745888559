// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/spf13/pflag"
	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// told remembers what an observer was told.
type told struct {
	mu    sync.Mutex
	texts []string
}

// NodesMissing implements NodesObserver.
func (o *told) NodesMissing(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.texts = append(o.texts, "")
		return
	}
	o.texts = append(o.texts, err.Error())
}

// take returns what was told since the last call.
func (o *told) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.texts
	o.texts = nil
	return out
}

// plain is a base with one node for each device. Its lists have room to be overwritten in.
type plain struct{ broken error }

// Common implements Base.
func (*plain) Common(context.Context) (*specs.ContainerEdits, error) {
	return &specs.ContainerEdits{}, nil
}

// Edits implements Base.
func (p *plain) Edits(_ context.Context, devices []sharing.DeviceID) (*specs.ContainerEdits, error) {
	if p.broken != nil {
		return nil, p.broken
	}
	edits := &specs.ContainerEdits{DeviceNodes: make([]*specs.DeviceNode, 0, 16), Mounts: make([]*specs.Mount, 0, 16)}
	for i := range devices {
		edits.DeviceNodes = append(edits.DeviceNodes, &specs.DeviceNode{Path: "/dev/nvidia" + string(rune('0'+i))})
	}
	return edits, nil
}

// untouched is a driver's library that nobody may call: one that hangs would keep who does.
type untouched struct{ gonvml.Interface }

// Library implements Library.
func (u untouched) Library() gonvml.Interface { return u }

// machine is a root with directories for device nodes.
type machine struct {
	t    *testing.T
	root string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t, t.TempDir()}
	for _, dir := range []string{"dev/infiniband", "dev/nvidia-caps-imex-channels", "etc", "run/udev"} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// node makes a character device.
func (m *machine) node(names ...string) {
	m.t.Helper()
	for _, name := range names {
		if err := syscall.Mknod(filepath.Join(m.root, "dev", name), syscall.S_IFCHR|0o666, 1<<8|3); err != nil {
			m.t.Skipf("device nodes cannot be made here: %v", err)
		}
	}
}

// remove removes a device.
func (m *machine) remove(name string) {
	m.t.Helper()
	if err := os.Remove(filepath.Join(m.root, "dev", name)); err != nil {
		m.t.Fatal(err)
	}
}

// base is a base on this machine, which is the host's /host.
func (m *machine) base(a Additional, o NodesObserver) Base {
	source := &nvidia{cfg: ToolkitConfig{DriverRoot: "/host", SeenRoot: m.root, DevRoot: m.root, HookPath: "/hook", Library: untouched{}}}
	return withAdditional(&plain{}, &a, source, o)
}

// paths are the nodes and the mounts of a container, as "HOST>CONTAINER", without those of devices.
func paths(t *testing.T, b Base, devices ...sharing.DeviceID) []string {
	t.Helper()
	edits, err := b.Edits(t.Context(), devices)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range edits.DeviceNodes[len(devices):] {
		out = append(out, n.HostPath+">"+n.Path)
	}
	for _, m := range edits.Mounts {
		if !slices.Contains(m.Options, "ro") {
			t.Errorf("%s can be written", m.HostPath)
		}
		out = append(out, m.HostPath+">"+m.ContainerPath)
	}
	slices.Sort(out)
	return out
}

// on is paths that are the same on the host and in the container.
func on(names ...string) []string {
	var out []string
	for _, name := range names {
		out = append(out, "/host"+name+">"+name)
	}
	return out
}

func TestContainersGetTheNodesThatAreAskedForAndNoOthers(t *testing.T) {
	m := newMachine(t)
	m.node("gdrdrv", "nvidia-fs0", "nvidia-fs1", "infiniband/uverbs0", "infiniband/uverbs1", "infiniband/rdma_cm", "infiniband/umad0",
		"nvidia-caps-imex-channels/channel0", "nvidia-caps-imex-channels/channel3", "nvidia-caps-imex-channels/channel33")
	if err := os.WriteFile(filepath.Join(m.root, "etc", "cufile.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	gds := on("/dev/nvidia-fs0", "/dev/nvidia-fs1", "/etc/cufile.json", "/run/udev")
	mofed := on("/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1")
	channels := on("/dev/nvidia-caps-imex-channels/channel0", "/dev/nvidia-caps-imex-channels/channel3")
	for name, c := range map[string]struct {
		asked Additional
		want  []string
	}{
		"nothing":      {Additional{}, nil},
		"GDRCopy":      {Additional{GDRCopy: true}, on("/dev/gdrdrv")},
		"GDS":          {Additional{GDS: true}, gds},
		"MOFED":        {Additional{MOFED: true}, mofed},
		"one channel":  {Additional{IMEXChannels: []string{"3"}}, channels[1:]},
		"two channels": {Additional{IMEXChannels: []string{"0", "3"}}, channels},
		"all": {Additional{GDRCopy: true, GDS: true, MOFED: true, IMEXChannels: []string{"3", "0"}},
			slices.Concat(on("/dev/gdrdrv"), gds, mofed, channels)},
	} {
		t.Run(name, func(t *testing.T) {
			var o told
			slices.Sort(c.want)
			b := m.base(c.asked, &o)
			for kind, id := range map[string]sharing.DeviceID{"a whole device or a part by library": "GPU-a", "a partition": "MIG-a"} {
				if got := paths(t, b, id); !slices.Equal(got, c.want) {
					t.Errorf("%s: a container gets %q, want %q", kind, got, c.want)
				}
			}
			if said := o.take(); len(said) != 0 {
				t.Errorf("nothing is missing, yet it was told %q", said)
			}
		})
	}
}

// The GPU operator has the driver in a container: its files lie below another root than the nodes.
func TestADriverInAContainerBringsFilesAndTheHostNodes(t *testing.T) {
	m, driver := newMachine(t), newMachine(t)
	m.node("gdrdrv", "nvidia-fs0", "infiniband/uverbs0", "nvidia-caps-imex-channels/channel0")
	if err := os.WriteFile(filepath.Join(driver.root, "etc", "cufile.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var o told
	source := &nvidia{cfg: ToolkitConfig{DriverRoot: "/run/nvidia/driver", SeenRoot: driver.root, DevRoot: m.root, HookPath: "/hook"}}
	b := withAdditional(&plain{}, &Additional{GDRCopy: true, GDS: true, MOFED: true, IMEXChannels: []string{"0"}}, source, &o)
	var want []string
	for _, node := range []string{"gdrdrv", "nvidia-fs0", "infiniband/uverbs0", "nvidia-caps-imex-channels/channel0"} {
		want = append(want, m.root+"/dev/"+node+">/dev/"+node)
	}
	for _, file := range []string{"/etc/cufile.json", "/run/udev"} {
		want = append(want, "/run/nvidia/driver"+file+">"+file)
	}
	slices.Sort(want)
	if got := paths(t, b, "GPU-a"); !slices.Equal(got, want) {
		t.Errorf("a container gets %q, want %q", got, want)
	}
}

func TestASpecificationWithAdditionalNodesIsValidForEveryMode(t *testing.T) {
	m := newMachine(t)
	m.node("gdrdrv")
	var o told
	edits, err := m.base(Additional{GDRCopy: true}, &o).Edits(t.Context(), []sharing.DeviceID{"GPU-a"})
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]modes.Injection{
		"a whole device": {},
		"hami-core":      {Env: []modes.Variable{{Name: "A", Value: "b"}}, Mounts: []modes.Mount{{Host: "/a", Container: "/b", ReadOnly: true}}},
		"a partition":    {DeviceNodes: []string{"/dev/nvidia-caps/nvidia-cap3"}},
	} {
		text, err := Spec("abc", nil, edits, in)
		if err != nil || !strings.Contains(string(text), "/host/dev/gdrdrv") {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}

func TestWhatIsMissingIsToldOnceAndContainersStartWithout(t *testing.T) {
	m := newMachine(t)
	m.node("nvidia-fs0")
	if err := os.WriteFile(filepath.Join(m.root, "dev", "gdrdrv"), nil, 0o600); err != nil { // no device
		t.Fatal(err)
	}
	var o told
	b := m.base(Additional{GDRCopy: true, GDS: true, IMEXChannels: []string{"0"}}, &o)
	said := o.take()
	if len(said) != 1 || !strings.Contains(said[0], "--gdrcopy-enabled: this node has no /dev/gdrdrv, and containers start without: load the module gdrdrv") ||
		!strings.Contains(said[0], "/dev/nvidia-caps-imex-channels/channel0") || strings.Contains(said[0], "gds") {
		t.Fatalf("told %q", said)
	}
	for range 3 {
		if got, want := paths(t, b, "GPU-a"), on("/dev/nvidia-fs0", "/run/udev"); !slices.Equal(got, want) {
			t.Errorf("a container gets %q, want %q", got, want)
		}
	}
	if said := o.take(); len(said) != 0 {
		t.Errorf("told again: %q", said)
	}
	m.remove("gdrdrv")
	m.node("gdrdrv", "nvidia-caps-imex-channels/channel0")
	if got := paths(t, b, "GPU-a"); len(got) != 4 {
		t.Errorf("after modules were loaded a container gets %q", got)
	}
	if said := o.take(); len(said) != 1 || said[0] != "" {
		t.Errorf("when nothing is missing any more it is told %q", said)
	}
	m.remove("nvidia-fs0")
	if got := paths(t, b, "GPU-a"); slices.Contains(got, "/host/dev/nvidia-fs0>/dev/nvidia-fs0") || slices.Contains(got, "/host/run/udev>/run/udev") {
		t.Errorf("without a device a container gets %q", got)
	}
	if said := o.take(); len(said) != 1 || !strings.Contains(said[0], "--gds-enabled") {
		t.Errorf("told %q", said)
	}
}

// unreadable is a machine that cannot be looked at.
type unreadable struct{}

// nodeEdits implements nodeSource.
func (unreadable) nodeEdits(nodeKind) (*specs.ContainerEdits, error) {
	return nil, errors.New("input/output error")
}

func TestALookThatFailsIsToldAndABaseThatFailsIsAnError(t *testing.T) {
	var o told
	a := Additional{MOFED: true}
	b := withAdditional(&plain{}, &a, unreadable{}, &o)
	if got := paths(t, b, "GPU-a"); len(got) != 0 {
		t.Errorf("a container gets %q", got)
	}
	if said := o.take(); len(said) != 1 || !strings.Contains(said[0], "--mofed-enabled") || !strings.Contains(said[0], "input/output error") {
		t.Errorf("told %q", said)
	}
	broken := errors.New("no such device")
	if _, err := withAdditional(&plain{broken: broken}, &a, unreadable{}, &o).Edits(t.Context(), nil); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}

// Containers that start at once share the answers that a base keeps. None sees another's nodes, and
// a change is told once, whoever sees it first.
func TestContainersThatStartAtOnceDoNotDisturbEachOther(t *testing.T) {
	m := newMachine(t)
	m.node("gdrdrv")
	var o told
	b := m.base(Additional{GDRCopy: true, GDS: true}, &o)
	o.take()
	m.node("nvidia-fs0")
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			edits, err := b.Edits(context.Background(), []sharing.DeviceID{"GPU-a", "GPU-b"})
			if err != nil || len(edits.DeviceNodes) != 4 {
				t.Errorf("got %+v, %v", edits, err)
			}
		})
	}
	all.Wait()
	if said := o.take(); len(said) != 1 || said[0] != "" {
		t.Errorf("told %q", said)
	}
}

func TestAskingForAdditionalNodesIsReadStrictly(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want []string // of the mistakes, one each
	}{
		"nothing":                {nil, nil},
		"all of them":            {[]string{"--gdrcopy-enabled", "--gds-enabled", "--mofed-enabled", "--imex-channel-ids=0,7", "--imex-channel-ids=65535"}, nil},
		"every mistake at once":  {[]string{"--imex-channel-ids=all,-1,65536,07,3,3, 4"}, []string{`[0]="all"`, `[1]="-1"`, `[2]="65536"`, `[3]="07"`, `[5]="3": it is there twice`, `[6]=" 4"`}},
		"an empty number":        {[]string{"--imex-channel-ids=1,"}, []string{`[1]=""`}},
		"without the toolkit":    {[]string{"--driver-edits=files", "--gds-enabled"}, []string{"--driver-edits=nvcdi only"}},
		"files and nothing more": {[]string{"--driver-edits=files", "--gds-enabled=false"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			o.AddFlags(flags)
			if err := flags.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			wrong := o.Check()
			if len(wrong) != len(c.want) {
				t.Fatalf("mistakes %q, want %q", wrong, c.want)
			}
			for i, err := range wrong {
				if !strings.Contains(err.Error(), c.want[i]) {
					t.Errorf("mistake %d is %q, want %s", i, err, c.want[i])
				}
			}
		})
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o := DefaultOptions()
	o.AddFlags(flags)
	if err := flags.Parse([]string{"--gds-enabled=often"}); err == nil {
		t.Error("a flag that is neither true nor false was read")
	}
}
