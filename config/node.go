// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"deviceshare/sharing"
)

// The ConfigMap of the settings of single nodes, and the key in it.
const (
	NodeName = "volcano-vgpu-node-config"
	NodeKey  = "config.json"
)

// Node is the content of config.json: settings of single nodes.
type Node struct {
	Nodes []NodeSettings
}

// NodeSettings are the settings of one node. A zero value leaves the decision to
// the cluster-wide configuration.
type NodeSettings struct {
	Name string
	// Mode is the mode of the node's devices unless a rule says otherwise; ""
	// means hami-core.
	Mode                       sharing.Mode
	MemoryScaling, CoreScaling float64
	SplitCount                 int64
	// MPSClients lowers how many clients an MPS server is taken to serve; 0 keeps
	// what hardware and driver serve.
	MPSClients int64
	// MigStrategy is none, single or mixed. It is accepted for the sake of
	// existing files; partitions do not become resources of their own.
	MigStrategy string
	// HiddenIDs and HiddenIndexes are devices that are not shared at all.
	HiddenIDs     []sharing.DeviceID
	HiddenIndexes []int
	// Devices are rules for single devices; the first that matches is used.
	Devices []DeviceRule
}

// DeviceRule is what holds for the devices it matches. Exactly one of ID, Index
// and Model is set; Index is -1 when it is not.
type DeviceRule struct {
	ID    sharing.DeviceID
	Index int
	Model string // words of the product name, see sharing.IsModel

	Mode                       sharing.Mode
	MemoryScaling, CoreScaling float64
	SplitCount                 int64
	MPSClients                 int64
}

// DeviceSettings is what holds for one device.
type DeviceSettings struct {
	// Hidden devices are not shared and not published.
	Hidden bool
	Mode   sharing.Mode
	// Given says that the text names the mode; else it is the default.
	Given                      bool
	MemoryScaling, CoreScaling float64
	MaxShares                  int
	MaxClients                 int // of an MPS server, 0 for what it serves
}

// LoadNode reads config.json. With any problem the returned value is empty and
// must not be used.
func LoadNode(data []byte) (Node, []Problem) {
	var p problems
	root, ok := rootOf(data, &p)
	if !ok {
		return Node{}, p
	}
	var n Node
	root.readList("nodeconfig", func(path string, value any) {
		s := nodeSettings(path, value, &p)
		if s.Name != "" && slices.ContainsFunc(n.Nodes, func(t NodeSettings) bool { return t.Name == s.Name }) {
			p.add(path+".name", "%s is there twice", s.Name)
		}
		n.Nodes = append(n.Nodes, s)
	})
	root.requireField("nodeconfig")
	root.reportUnknown()
	if len(p) > 0 {
		return Node{}, p
	}
	return n, nil
}

// For returns the settings of a node: empty ones if the text has none for it.
func (n Node) For(name string) NodeSettings {
	for i := range n.Nodes {
		if n.Nodes[i].Name == name {
			return n.Nodes[i]
		}
	}
	return NodeSettings{Name: name}
}

// Hash identifies the content: two texts that say the same have the same hash.
func (n Node) Hash() string { return contentHash(n) }

// Device returns what holds for one device: the first rule that matches it, over
// the settings of the node, over the cluster-wide configuration.
func (s NodeSettings) Device(d Device, id sharing.DeviceID, index int, model string) DeviceSettings {
	out := DeviceSettings{
		Hidden:        slices.Contains(s.HiddenIDs, id) || slices.Contains(s.HiddenIndexes, index),
		Mode:          sharing.HAMiCore,
		MemoryScaling: d.MemoryScaling,
		CoreScaling:   d.CoreScaling,
		MaxShares:     int(d.SplitCount),
	}
	out.applyOverrides(s.Mode, s.MemoryScaling, s.CoreScaling, s.SplitCount, s.MPSClients)
	for _, r := range s.Devices {
		if r.matchesDevice(id, index, model) {
			out.applyOverrides(r.Mode, r.MemoryScaling, r.CoreScaling, r.SplitCount, r.MPSClients)
			break
		}
	}
	return out
}

func (s *DeviceSettings) applyOverrides(mode sharing.Mode, memory, cores float64, splits, clients int64) {
	if clients > 0 {
		s.MaxClients = int(clients)
	}
	if mode != "" {
		s.Mode, s.Given = mode, true
	}
	if memory > 0 {
		s.MemoryScaling = memory
	}
	if cores > 0 {
		s.CoreScaling = cores
	}
	if splits > 0 {
		s.MaxShares = int(splits)
	}
}

func (r *DeviceRule) matchesDevice(id sharing.DeviceID, index int, model string) bool {
	switch {
	case r.ID != "":
		return r.ID == id
	case r.Model != "":
		return sharing.IsModel(r.Model, model)
	}
	return r.Index == index
}

func nodeSettings(path string, value any, p *problems) NodeSettings {
	var s NodeSettings
	o, ok := objectOf(value, path, p)
	if !ok {
		return s
	}
	o.readString("name", &s.Name, checkNotEmpty)
	o.requireField("name")
	o.readMode("operatingmode", &s.Mode)
	o.readFloat("devicememoryscaling", &s.MemoryScaling, true)
	o.readFloat("devicecorescaling", &s.CoreScaling, true)
	o.readInt("devicesplitcount", &s.SplitCount, 0, mostSplits)
	o.readInt("mpsclients", &s.MPSClients, 0, mostSplits)
	o.readString("migstrategy", &s.MigStrategy, checkStrategy)
	o.readHiddenDevices(&s)
	o.readList("devices", func(path string, value any) {
		s.Devices = append(s.Devices, deviceRule(path, value, p))
	})
	o.reportUnknown()
	return s
}

func (o *object) readHiddenDevices(s *NodeSettings) {
	value, ok := o.readField("filterdevices")
	if !ok {
		return
	}
	f, ok := objectOf(value, o.fieldPath("filterdevices"), o.p)
	if !ok {
		return
	}
	f.readList("uuid", func(path string, value any) {
		if id, ok := value.(string); !ok || id == "" {
			o.p.add(path, "is %s, want a device UUID", describeValue(value))
		} else {
			s.HiddenIDs = append(s.HiddenIDs, sharing.DeviceID(id))
		}
	})
	f.readList("index", func(path string, value any) {
		if n, ok := parseInteger(value, path, o.p, 0, mostIndex); ok {
			s.HiddenIndexes = append(s.HiddenIndexes, int(n))
		}
	})
	f.reportUnknown()
}

func deviceRule(path string, value any, p *problems) DeviceRule {
	r := DeviceRule{Index: -1}
	o, ok := objectOf(value, path, p)
	if !ok {
		return r
	}
	var id string
	var index int64
	o.readString("uuid", &id, checkNotEmpty)
	if o.readInt("index", &index, 0, mostIndex) {
		r.Index = int(index)
	}
	o.readString("model", &r.Model, checkModel)
	r.ID = sharing.DeviceID(id)
	selectors := 0
	for _, name := range []string{"uuid", "index", "model"} {
		if _, there := o.fields[name]; there {
			selectors++
		}
	}
	if selectors != 1 {
		p.add(path, "has %d of uuid, index and model: want exactly one", selectors)
	}
	o.readMode("mode", &r.Mode)
	o.readFloat("memoryscaling", &r.MemoryScaling, true)
	o.readFloat("corescaling", &r.CoreScaling, true)
	o.readInt("splitcount", &r.SplitCount, 0, mostSplits)
	o.readInt("mpsclients", &r.MPSClients, 0, mostSplits)
	o.reportUnknown()
	return r
}

// readMode reads a mode; an empty one is the same as none.
func (o *object) readMode(name string, dst *sharing.Mode) {
	var text string
	o.readString(name, &text, allowEmpty(func(s string) error {
		_, err := sharing.ParseMode(s)
		return err
	}))
	*dst = sharing.Mode(text)
}

func checkNotEmpty(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("is empty")
	}
	return nil
}

func checkModel(s string) error {
	if sharing.ModelWords(s) == "" {
		return errors.New("has no letter or digit: want words of a product name, such as A100-SXM4")
	}
	return nil
}

func checkStrategy(s string) error {
	switch s {
	case "", "none", "single", "mixed":
		return nil
	}
	return fmt.Errorf("%q is not none, single or mixed", shortenText(s))
}
