// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	"deviceshare/sharing"
)

const inventoryFormat = "node inventory"

type inventoryText struct {
	Version      int          `json:"version"`
	Node         string       `json:"node"`
	GeometryHash string       `json:"geometryHash,omitempty"`
	Devices      []deviceText `json:"devices"`
}

// deviceText has pointers where a missing field would otherwise read as a value.
type deviceText struct {
	UUID      string            `json:"uuid"`
	Index     *int              `json:"index"`
	Model     string            `json:"model,omitempty"`
	Memory    *int64            `json:"memory"`             // bytes
	Physical  int64             `json:"physical,omitempty"` // bytes
	Cores     *int              `json:"cores"`
	MaxShares *int              `json:"maxShares"`
	Clients   *int              `json:"maxClients,omitempty"`
	OneUser   bool              `json:"oneUser,omitempty"`
	OneSpace  bool              `json:"oneNamespace,omitempty"`
	NoRoot    bool              `json:"noRoot,omitempty"`
	Healthy   *bool             `json:"healthy"`
	Reason    string            `json:"reason,omitempty"`
	Changing  bool              `json:"changing,omitempty"`
	Virtual   bool              `json:"virtual,omitempty"`
	Licence   string            `json:"licence,omitempty"`
	Mode      string            `json:"mode"`
	NUMA      *int              `json:"numa,omitempty"`
	PCI       string            `json:"pci,omitempty"`
	Links     []linkText        `json:"links,omitempty"`
	MIG       *partitioningText `json:"mig,omitempty"`
}

type linkText struct {
	Peer  string `json:"peer"`
	Kind  string `json:"kind"`
	Count int    `json:"count,omitempty"`
}

// EncodeInventory writes the devices of a node as JSON. It is an error if the
// inventory holds what DecodeInventory refuses. The order of the devices does
// not matter; they are written by index.
func EncodeInventory(inv sharing.Inventory) (string, error) {
	out := inventoryText{Version: version, Node: inv.Node, GeometryHash: inv.GeometryHash, Devices: []deviceText{}}
	devices := slices.Clone(inv.Devices)
	slices.SortStableFunc(devices, func(a, b sharing.Device) int { return cmp.Compare(a.Index, b.Index) })
	for i := range devices {
		out.Devices = append(out.Devices, deviceOut(&devices[i]))
	}
	if _, err := inventoryIn(&out); err != nil {
		return "", err
	}
	text, err := renderJSON(inventoryFormat, out)
	if err == nil && len(text) > MaxText {
		err = &Error{inventoryFormat, "", "would be " + strconv.Itoa(len(text)) + " bytes long, more than " + strconv.Itoa(MaxText)}
	}
	if err != nil {
		return "", err
	}
	return text, nil
}

// DecodeInventory reads what EncodeInventory writes. Errors are of type *Error.
func DecodeInventory(text string) (sharing.Inventory, error) {
	in, ok := readAlike(text)
	if !ok {
		in = &inventoryText{}
		if err := parseJSON(inventoryFormat, text, in); err != nil {
			return sharing.Inventory{}, err
		}
	}
	return inventoryIn(in)
}

// readAlike reads an inventory without mistakes. It reads the partitionings of devices whose texts
// are equal once: they are most of the text, and a node's devices are mostly of one model. Their
// devices share what it read.
func readAlike(text string) (*inventoryText, bool) {
	var in struct {
		inventoryText
		Devices []struct {
			deviceText
			MIG json.RawMessage `json:"mig"`
		} `json:"devices"`
	}
	if parseJSON(inventoryFormat, text, &in) != nil {
		return nil, false
	}
	out, known := in.inventoryText, map[string]*partitioningText{}
	for i := range in.Devices {
		d, mig := in.Devices[i].deviceText, in.Devices[i].MIG
		if len(mig) > 0 {
			if known[string(mig)] == nil {
				known[string(mig)] = &partitioningText{}
				if json.Unmarshal(mig, known[string(mig)]) != nil {
					return nil, false
				}
			}
			d.MIG = known[string(mig)]
		}
		out.Devices = append(out.Devices, d)
	}
	return &out, true
}

func inventoryIn(in *inventoryText) (sharing.Inventory, error) {
	f := &firstError{text: inventoryFormat}
	if !validName(in.Node, longestName) {
		f.failf("node", "%s is not a node name", quoteExcerpt(in.Node))
	}
	if !validText(in.GeometryHash, longestName) {
		f.failf("geometryHash", "is not a hash")
	}
	inv := sharing.Inventory{Node: in.Node, GeometryHash: in.GeometryHash}
	seen, cuts := map[string]struct{}{}, 0
	alike := map[*partitioningText]*sharing.Partitioning{}
	for i := range in.Devices {
		path := "devices[" + strconv.Itoa(i) + "]"
		d := deviceIn(f, path, &in.Devices[i])
		if text := in.Devices[i].MIG; text != nil {
			if alike[text] == nil {
				alike[text] = partitioningIn(f, path+".mig", text)
			}
			d.MIG = alike[text]
		}
		if _, twice := seen[in.Devices[i].UUID]; twice {
			f.failf(path+".uuid", "%s is there twice", in.Devices[i].UUID)
		}
		seen[in.Devices[i].UUID] = struct{}{}
		if i > 0 && f.err == nil && d.Index <= inv.Devices[i-1].Index {
			f.failf(path+".index", "%d follows %d, want ascending and no index twice", d.Index, inv.Devices[i-1].Index)
		}
		if f.err != nil {
			return sharing.Inventory{}, f.asError()
		}
		inv.Devices = append(inv.Devices, d)
		if d.MIG != nil {
			cuts += len(d.MIG.Geometries)
		}
	}
	if cuts > maxCuts {
		f.failf("devices", "they have %d geometries, want at most %d", cuts, maxCuts)
	}
	if f.err != nil {
		return sharing.Inventory{}, f.asError()
	}
	return inv, nil
}

func deviceOut(d *sharing.Device) deviceText {
	memory, cores, numa := int64(d.Memory), int(d.Cores), d.NUMA
	out := deviceText{
		UUID: string(d.ID), Index: &d.Index, Model: d.Model, Memory: &memory, Physical: int64(d.Physical), Cores: &cores,
		MaxShares: &d.MaxShares, Healthy: &d.Healthy, Mode: string(d.Mode), NUMA: &numa, PCI: d.PCI, OneUser: d.OneUser,
		OneSpace: d.OneNamespace, NoRoot: d.NoRoot,
	}
	if !d.Healthy {
		out.Reason, out.Changing = d.Reason, d.Changing
	}
	if d.Virtual {
		out.Virtual, out.Licence = true, string(d.Licence)
	}
	if d.MaxClients > 0 {
		out.Clients = &d.MaxClients
	}
	for _, l := range d.Links {
		out.Links = append(out.Links, linkText{Peer: string(l.Peer), Kind: l.Kind, Count: l.Count})
	}
	if d.MIG != nil {
		out.MIG = partitioningOut(d.MIG)
	}
	return out
}

// deviceIn reads a device but for its partitioning, which it may share with others.
func deviceIn(f *firstError, path string, in *deviceText) sharing.Device {
	d := sharing.Device{ID: sharing.DeviceID(in.UUID), Model: in.Model, PCI: in.PCI, NUMA: -1, OneUser: in.OneUser, OneNamespace: in.OneSpace, NoRoot: in.NoRoot}
	if !validID(in.UUID) {
		f.failf(path+".uuid", "%s is not a device UUID", quoteExcerpt(in.UUID))
	}
	if !validText(in.Model, longestModel) {
		f.failf(path+".model", "%s is not a model name", quoteExcerpt(in.Model))
	}
	if !validText(in.PCI, longestName) {
		f.failf(path+".pci", "%s is not a PCI bus id", quoteExcerpt(in.PCI))
	}
	d.Index = requireNumber(f, path+".index", in.Index, 0, maxIndex)
	d.Memory = sharing.Bytes(requireNumber(f, path+".memory", in.Memory, 0, int64(sharing.MaxBytes)))
	d.Physical = sharing.Bytes(requireNumber(f, path+".physical", &in.Physical, 0, int64(sharing.MaxBytes)))
	d.Cores = sharing.Percent(requireNumber(f, path+".cores", in.Cores, 0, maxCores))
	d.MaxShares = requireNumber(f, path+".maxShares", in.MaxShares, 0, maxShares)
	if in.Clients != nil {
		d.MaxClients = requireNumber(f, path+".maxClients", in.Clients, 0, maxShares)
	}
	if in.Healthy == nil {
		f.failf(path+".healthy", "is missing")
	} else {
		d.Healthy = *in.Healthy
	}
	if !validText(in.Reason, longestReason) {
		f.failf(path+".reason", "is not a line of text")
	}
	if !d.Healthy {
		d.Reason, d.Changing = in.Reason, in.Changing
	}
	if !validText(in.Licence, longestName) {
		f.failf(path+".licence", "is not a word")
	}
	if d.Virtual = in.Virtual; d.Virtual {
		d.Licence = licenceIn(in.Licence)
	}
	mode, err := sharing.ParseMode(in.Mode)
	if err != nil {
		f.failf(path+".mode", "%v", err)
	}
	d.Mode = mode
	if in.NUMA != nil {
		d.NUMA = requireNumber(f, path+".numa", in.NUMA, -1, maxIndex)
	}
	d.Links = linksIn(f, path, in.Links)
	return d
}

// licenceIn reads words of later versions as unknown.
func licenceIn(text string) sharing.Licence {
	switch l := sharing.Licence(text); l {
	case sharing.LicenceValid, sharing.LicenceMissing:
		return l
	}
	return sharing.LicenceUnknown
}

func linksIn(f *firstError, path string, in []linkText) []sharing.Link {
	var links []sharing.Link
	for i, l := range in {
		below := path + ".links[" + strconv.Itoa(i) + "]"
		if !validID(l.Peer) {
			f.failf(below+".peer", "%s is not a device UUID", quoteExcerpt(l.Peer))
		}
		if !validName(l.Kind, longestID) {
			f.failf(below+".kind", "%s is not a kind of link", quoteExcerpt(l.Kind))
		}
		if l.Count < 0 || l.Count > maxLinks {
			f.failf(below+".count", "%d is outside 0 to %d", l.Count, maxLinks)
		}
		links = append(links, sharing.Link{Peer: sharing.DeviceID(l.Peer), Kind: l.Kind, Count: l.Count})
	}
	return links
}
