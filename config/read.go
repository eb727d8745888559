// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"

	"deviceshare/sharing"
	"deviceshare/sharing/mig"
	"deviceshare/sharing/wire"
)

// Bounds that only nonsense exceeds.
const (
	mostScaling    = 100
	mostSplits     = 1000
	mostDevices    = 1024
	mostMemory     = 1 << 24 // MiB: 16 TiB
	mostPartitions = 64
	mostIndex      = 1 << 16
)

// readDevice reads device-config.yaml over the values of base.
func readDevice(data []byte, base Device) (Device, []Problem) {
	var p problems
	root, ok := rootOf(data, &p)
	if !ok {
		return Device{}, p
	}
	// The file belongs to Volcano: it also configures other devices.
	root.field("vnpus")
	root.require("nvidia")
	nvidia, there := root.field("nvidia")
	root.reportUnknown()
	if there {
		if o, ok := objectOf(nvidia, "nvidia", &p); ok {
			o.device(&base)
			o.reportUnknown()
		}
	}
	if len(p) > 0 {
		return Device{}, p
	}
	return base, nil
}

func (o *object) device(d *Device) {
	o.text("resourceCountName", &d.CountName, checkResource)
	o.text("resourceMemoryName", &d.MemoryName, checkResource)
	o.text("resourceCoreName", &d.CoreName, checkResource)
	o.text("resourceMemoryPercentageName", &d.PercentageName, optional(checkResource))
	o.text("resourcePriorityName", &d.PriorityName, optional(checkResource))
	o.requireDistinctNames(d)
	o.boolean("overwriteEnv", &d.OverwriteEnv)
	o.whole("defaultMemory", &d.DefaultMemory, 0, mostMemory)
	o.whole("defaultCores", &d.DefaultCores, 0, 100)
	o.whole("defaultGPUNum", &d.DefaultCount, 1, mostDevices)
	o.whole("deviceSplitCount", &d.SplitCount, 1, mostSplits)
	o.fraction("deviceMemoryScaling", &d.MemoryScaling, false)
	o.fraction("deviceCoreScaling", &d.CoreScaling, false)
	o.boolean("disableCoreLimit", &d.DisableCoreLimit)
	o.choice("idleCompute", &d.LeaveIdle, "borrow", "leave")
	o.choice("contextMemory", &d.ContextFree, "charge", "free")
	o.choice("deepbind", &d.KeepDeepbind, "drop", "keep")
	o.boolean("standIn", &d.StandIn)
	o.whole("gpuMemoryFactor", &d.MemoryFactor, 1, mostMemory)
	o.boolean("passDeviceSpecs", &d.PassDeviceSpecs)
	o.policy("migPolicy", &d.MIGPolicy)
	var known []ModelGeometries
	switch listed := o.each("knownMigGeometries", func(path string, value any) {
		known = append(known, modelGeometries(path, value, o.p))
	}); {
	case listed:
		d.Known = known
	case d.MIGPolicy == sharing.BestFit:
		// The default list is there because first-match needs one. Best-fit is
		// bound by groups only if the administrator wrote them.
		d.Known = nil
	}
}

// policy reads how partitions are chosen; it reports whether the field is there.
func (o *object) policy(name string, dst *sharing.PartitionPolicy) bool {
	var text string
	o.text(name, &text, func(s string) error {
		if _, err := sharing.ParsePartitionPolicy(s); err != nil {
			return fmt.Errorf("%q is not a policy: want first-match or best-fit", shorten(s))
		}
		return nil
	})
	if text == "" {
		return false
	}
	*dst, _ = sharing.ParsePartitionPolicy(text)
	return true
}

// requireDistinctNames notes resources that share a name.
func (o *object) requireDistinctNames(d *Device) {
	names := []string{"resourceCountName", "resourceMemoryName", "resourceCoreName", "resourceMemoryPercentageName", "resourcePriorityName"}
	values := []string{d.CountName, d.MemoryName, d.CoreName, d.PercentageName, d.PriorityName}
	for i := range values {
		for j := range i {
			if values[i] != "" && values[i] == values[j] {
				o.p.add(o.at(names[i]), "%s is the name of %s too", values[i], names[j])
			}
		}
	}
}

// checkResource refuses what is no name of an extended resource.
func checkResource(s string) error {
	domain, name, ok := strings.Cut(s, "/")
	if ok && isPlain(domain) && isPlain(name) && len(s) <= 253 && len(name) <= 63 {
		return nil
	}
	return fmt.Errorf("%q is not a resource name: want domain/name", shorten(s))
}

// optional is a check that accepts an empty text too.
func optional(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

// isPlain reports that a text has letters, digits, dashes, underscores and dots only.
func isPlain(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}

func modelGeometries(path string, value any, p *problems) ModelGeometries {
	var m ModelGeometries
	o, ok := objectOf(value, path, p)
	if !ok {
		return m
	}
	if !o.each("models", func(path string, value any) {
		s, ok := value.(string)
		switch {
		case !ok:
			p.add(path, "is %s, want words of a product name", describe(value))
		case sharing.ModelWords(s) == "":
			p.add(path, "has no letter or digit: want words of a product name, such as A100-SXM4")
		default:
			m.Models = append(m.Models, s)
		}
	}) {
		o.require("models")
	} else if len(m.Models) == 0 && len(*p) == 0 {
		p.add(o.at("models"), "is an empty list: the entry never matches")
	}
	if !o.each("allowedGeometries", func(path string, value any) {
		m.Geometries = append(m.Geometries, geometry(path, value, p, m.Geometries))
	}) {
		o.require("allowedGeometries")
	}
	if n := len(m.Geometries); n > wire.MaxGeometries {
		p.add(o.at("allowedGeometries"), "has %d groups, want at most %d: every placement looks at all of them", n, wire.MaxGeometries)
	}
	var policy sharing.PartitionPolicy
	if o.policy("migPolicy", &policy) {
		m.Policy = &policy
	}
	o.reportUnknown()
	return m
}

// require notes a field that must be there, unless something is wrong with it.
func (o *object) require(name string) {
	if _, there := o.fields[name]; !there {
		o.p.add(o.at(name), "is missing")
	}
}

// geometry reads one group. before are the groups already read for these models.
func geometry(path string, value any, p *problems, before []sharing.Geometry) sharing.Geometry {
	var g sharing.Geometry
	o, ok := objectOf(value, path, p)
	if !ok {
		return g
	}
	o.text("group", &g.Name, checkGroup)
	o.require("group")
	for i := range before {
		if g.Name != "" && before[i].Name == g.Name {
			p.add(o.at("group"), "%s is there twice for these models", g.Name)
		}
	}
	var total int64
	o.each("geometries", func(path string, value any) {
		e := entry(path, value, p)
		g.Entries = append(g.Entries, e)
		if total += int64(e.Count); total > mostPartitions {
			p.add(path+".count", "the group has more than %d partitions", mostPartitions)
			total = 0
		}
	})
	o.require("geometries")
	if list, isList := o.fields["geometries"].([]any); isList && len(list) == 0 {
		p.add(o.at("geometries"), "is an empty list")
	}
	o.reportUnknown()
	return g
}

// checkGroup refuses what cannot be the name of a geometry.
func checkGroup(s string) error {
	if s == mig.Free {
		return fmt.Errorf("%q is the name of what is there where no geometry is listed: take another", s)
	}
	if wire.ValidGroup(s) {
		return nil
	}
	return fmt.Errorf("%q is not a group name: it is part of the id uuid[group-position], so it must not be empty "+
		"or hold '-', '[', ']', a space or a separator", shorten(s))
}

func entry(path string, value any, p *problems) sharing.GeometryEntry {
	var e sharing.GeometryEntry
	o, ok := objectOf(value, path, p)
	if !ok {
		return e
	}
	var memory, count int64
	o.text("name", &e.Profile, checkProfile)
	o.require("name")
	o.whole("memory", &memory, 1, mostMemory)
	o.require("memory")
	o.whole("count", &count, 1, mostPartitions)
	o.require("count")
	o.reportUnknown()
	e.Memory, e.Count = sharing.MiBs(memory), int(count)
	return e
}

// checkProfile refuses what is no name of a partition profile: those are 1g.10gb, and
// with attributes 1g.10gb+me or 1g.24gb+me.all or 1g.24gb-me.
func checkProfile(s string) error {
	compute, rest, ok := strings.Cut(s, "g.")
	memory, attribute, gb := strings.Cut(rest, "gb")
	plainAttribute := attribute == "" || (attribute[0] == '+' || attribute[0] == '-') && isPlain(attribute[1:])
	if ok && gb && isNumber(compute) && isNumber(memory) && plainAttribute {
		return nil
	}
	return fmt.Errorf("%q is not a profile name: want the form 1g.10gb", shorten(s))
}

// isNumber reports a whole number from 1 to 9999.
func isNumber(s string) bool {
	return s != "" && len(s) <= 4 && s[0] != '0' && strings.Trim(s, "0123456789") == ""
}
