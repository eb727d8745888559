// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strconv"

	"deviceshare/sharing"
)

const placementFormat = "pod placement"

// maxUser is the largest user id that a pod may name.
const maxUser = 1<<31 - 1

type placementText struct {
	Version      int             `json:"version"`
	Node         string          `json:"node"`
	Group        string          `json:"group,omitempty"`
	GeometryHash string          `json:"geometryHash,omitempty"`
	Containers   []containerText `json:"containers"`
}

type containerText struct {
	Name   string      `json:"name"`
	Kind   string      `json:"kind"`
	Shares []shareText `json:"shares"`
}

type shareText struct {
	UUID      string         `json:"uuid"`
	Mode      string         `json:"mode"`
	Memory    *int64         `json:"memory"` // bytes
	Cores     *int           `json:"cores"`
	Whole     bool           `json:"whole,omitempty"`
	Partition *partitionText `json:"partition,omitempty"`
	User      *int64         `json:"user,omitempty"`
}

type partitionText struct {
	Profile  string `json:"profile"`
	Start    *int   `json:"start"`
	Size     *int   `json:"size"`
	Geometry string `json:"geometry,omitempty"`
	Position int    `json:"position"`
}

// EncodePlacement writes a decision as JSON. It is an error if the placement
// holds what DecodePlacement refuses: a share of no memory, for example, since a
// limit of zero means no limit to older readers.
func EncodePlacement(p sharing.Placement) (string, error) {
	out := placementText{
		Version: version, Node: p.Node, Group: p.Group, GeometryHash: p.GeometryHash, Containers: []containerText{},
	}
	for _, c := range p.Containers {
		text := containerText{Name: c.Container, Kind: c.Kind.String(), Shares: []shareText{}}
		for i := range c.Shares {
			text.Shares = append(text.Shares, shareOut(&c.Shares[i]))
		}
		out.Containers = append(out.Containers, text)
	}
	if _, err := placementIn(&out); err != nil {
		return "", err
	}
	text, err := renderJSON(placementFormat, out)
	if err == nil && len(text) > MaxText {
		err = &Error{placementFormat, "", "would be " + strconv.Itoa(len(text)) + " bytes long, more than " + strconv.Itoa(MaxText)}
	}
	if err != nil {
		return "", err
	}
	return text, nil
}

// DecodePlacement reads what EncodePlacement writes. Errors are of type *Error.
func DecodePlacement(text string) (sharing.Placement, error) {
	var in placementText
	if err := parseJSON(placementFormat, text, &in); err != nil {
		return sharing.Placement{}, err
	}
	return placementIn(&in)
}

func shareOut(s *sharing.Share) shareText {
	memory, cores := int64(s.Memory), int(s.Cores)
	out := shareText{UUID: string(s.Device), Mode: string(s.Mode), Memory: &memory, Cores: &cores, Whole: s.Whole}
	if s.User.Known {
		out.User = &s.User.ID
	}
	if q := s.Partition; q != (sharing.Partition{}) {
		out.Partition = &partitionText{
			Profile: q.Profile, Start: &q.Start, Size: &q.Size, Geometry: q.Geometry, Position: q.Position,
		}
	}
	return out
}

func placementIn(in *placementText) (sharing.Placement, error) {
	f := &firstError{text: placementFormat}
	if !validName(in.Node, longestName) {
		f.failf("node", "%s is not a node name", quoteExcerpt(in.Node))
	}
	if !validText(in.Group, 2*longestName) {
		f.failf("group", "%s is not a group name", quoteExcerpt(in.Group))
	}
	if !validText(in.GeometryHash, longestName) {
		f.failf("geometryHash", "is not a hash")
	}
	p := sharing.Placement{Node: in.Node, Group: in.Group, GeometryHash: in.GeometryHash}
	seen := map[string]struct{}{}
	for i := range in.Containers {
		path := "containers[" + strconv.Itoa(i) + "]"
		c := containerIn(f, path, &in.Containers[i])
		if _, twice := seen[c.Container]; twice {
			f.failf(path+".name", "%s is there twice", quoteExcerpt(c.Container))
		}
		seen[c.Container] = struct{}{}
		p.Containers = append(p.Containers, c)
	}
	if f.err != nil {
		return sharing.Placement{}, f.asError()
	}
	return p, nil
}

func containerIn(f *firstError, path string, in *containerText) sharing.ContainerShares {
	if !validName(in.Name, longestName) {
		f.failf(path+".name", "%s is not a container name", quoteExcerpt(in.Name))
	}
	c := sharing.ContainerShares{Container: in.Name}
	switch in.Kind {
	case sharing.App.String():
	case sharing.Init.String():
		c.Kind = sharing.Init
	case sharing.Sidecar.String():
		c.Kind = sharing.Sidecar
	default:
		f.failf(path+".kind", "%s is not app, init or sidecar", quoteExcerpt(in.Kind))
	}
	seen := map[string]struct{}{}
	for i := range in.Shares {
		below := path + ".shares[" + strconv.Itoa(i) + "]"
		c.Shares = append(c.Shares, shareIn(f, below, &in.Shares[i]))
		if _, twice := seen[in.Shares[i].UUID]; twice {
			f.failf(below+".uuid", "%s is there twice", quoteExcerpt(in.Shares[i].UUID))
		}
		seen[in.Shares[i].UUID] = struct{}{}
	}
	return c
}

func shareIn(f *firstError, path string, in *shareText) sharing.Share {
	if !validID(in.UUID) {
		f.failf(path+".uuid", "%s is not a device UUID", quoteExcerpt(in.UUID))
	}
	mode, err := sharing.ParseMode(in.Mode)
	if err != nil {
		f.failf(path+".mode", "%v", err)
	}
	s := sharing.Share{
		Device: sharing.DeviceID(in.UUID),
		Mode:   mode,
		Memory: sharing.Bytes(requireNumber(f, path+".memory", in.Memory, 1, int64(sharing.MaxBytes))),
		Cores:  sharing.Percent(requireNumber(f, path+".cores", in.Cores, 0, 100)),
		Whole:  in.Whole,
	}
	if in.User != nil {
		s.User = sharing.KnownUser(requireNumber(f, path+".user", in.User, 0, maxUser))
	}
	switch {
	case mode == sharing.MIG && in.Partition == nil:
		f.failf(path+".partition", "is missing, mode %s needs one", mode)
	case mode != sharing.MIG && in.Partition != nil:
		f.failf(path+".partition", "is there, mode %s has none", quoteExcerpt(in.Mode))
	case in.Partition != nil:
		s.Partition = partitionIn(f, path+".partition", in.Partition)
	}
	return s
}

func partitionIn(f *firstError, path string, in *partitionText) sharing.Partition {
	if !validProfile(in.Profile) {
		f.failf(path+".profile", "%s is not a profile name", quoteExcerpt(in.Profile))
	}
	if in.Geometry != "" && !ValidGroup(in.Geometry) {
		f.failf(path+".geometry", "%s is not a group name", quoteExcerpt(in.Geometry))
	}
	start := requireNumber(f, path+".start", in.Start, 0, maxSlices-1)
	return sharing.Partition{
		Profile:  in.Profile,
		Start:    start,
		Size:     requireNumber(f, path+".size", in.Size, 1, maxSlices-start),
		Geometry: in.Geometry,
		Position: requireNumber(f, path+".position", &in.Position, 0, maxCount-1),
	}
}
