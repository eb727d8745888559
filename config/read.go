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
	root.readField("vnpus")
	root.requireField("nvidia")
	nvidia, there := root.readField("nvidia")
	if root.reportHAMis() {
		return Device{}, p
	}
	root.reportUnknown()
	if there {
		if o, ok := objectOf(nvidia, "nvidia", &p); ok {
			o.readDeviceFields(&base)
			o.reportUnknown()
		}
	}
	if len(p) > 0 {
		return Device{}, p
	}
	return base, nil
}

// reportHAMis says so, and nothing else, where the text is of HAMi's ConfigMap, which also
// configures devices of other vendors. Volcano's and HAMi's pages name it as
// deviceshare.KnownGeometriesCMName.
func (o *object) reportHAMis() bool {
	for _, vendor := range []string{"cambricon", "hygon", "metax", "enflame", "mthreads", "iluvatars", "kunlun", "awsneuron"} {
		if _, there := o.fields[vendor]; there {
			o.p.add("", "is HAMi's (it has %s), of ConfigMap hami-scheduler-device. Write ours, %s, which is also the default of deviceshare.KnownGeometriesCMName", vendor, DeviceName)
			return true
		}
	}
	return false
}

func (o *object) readDeviceFields(d *Device) {
	o.readString("resourceCountName", &d.CountName, checkResource)
	o.readString("resourceMemoryName", &d.MemoryName, checkResource)
	o.readString("resourceCoreName", &d.CoreName, checkResource)
	o.readString("resourceMemoryPercentageName", &d.PercentageName, allowEmpty(checkResource))
	o.readString("resourcePriorityName", &d.PriorityName, allowEmpty(checkResource))
	o.requireDistinctNames(d)
	o.readBool("overwriteEnv", &d.OverwriteEnv)
	o.readInt("defaultMemory", &d.DefaultMemory, 0, mostMemory)
	o.readInt("defaultCores", &d.DefaultCores, 0, 100)
	o.readInt("defaultGPUNum", &d.DefaultCount, 1, mostDevices)
	o.readInt("deviceSplitCount", &d.SplitCount, 1, mostSplits)
	o.readFloat("deviceMemoryScaling", &d.MemoryScaling, false)
	o.readFloat("deviceCoreScaling", &d.CoreScaling, false)
	o.readBool("disableCoreLimit", &d.DisableCoreLimit)
	o.readChoice("idleCompute", &d.LeaveIdle, "borrow", "leave")
	o.readChoice("contextMemory", &d.ContextFree, "charge", "free")
	o.readChoice("deepbind", &d.KeepDeepbind, "drop", "keep")
	o.readBool("standIn", &d.StandIn)
	o.readInt("gpuMemoryFactor", &d.MemoryFactor, 1, mostMemory)
	o.readBool("passDeviceSpecs", &d.PassDeviceSpecs)
	o.readPolicy("migPolicy", &d.MIGPolicy)
	var known []ModelGeometries
	switch listed := o.readList("knownMigGeometries", func(path string, value any) {
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

// readPolicy reads how partitions are chosen; it reports whether the field is there.
func (o *object) readPolicy(name string, dst *sharing.PartitionPolicy) bool {
	var text string
	o.readString(name, &text, func(s string) error {
		if _, err := sharing.ParsePartitionPolicy(s); err != nil {
			return fmt.Errorf("%q is not a policy: want first-match or best-fit", shortenText(s))
		}
		return nil
	})
	if text == "" {
		return false
	}
	*dst, _ = sharing.ParsePartitionPolicy(text)
	return true
}

func (o *object) requireDistinctNames(d *Device) {
	names := []string{"resourceCountName", "resourceMemoryName", "resourceCoreName", "resourceMemoryPercentageName", "resourcePriorityName"}
	values := []string{d.CountName, d.MemoryName, d.CoreName, d.PercentageName, d.PriorityName}
	for i := range values {
		for j := range i {
			if values[i] != "" && values[i] == values[j] {
				o.p.add(o.fieldPath(names[i]), "%s is the name of %s too", values[i], names[j])
			}
		}
	}
}

func checkResource(s string) error {
	domain, name, ok := strings.Cut(s, "/")
	if ok && isPlain(domain) && isPlain(name) && len(s) <= 253 && len(name) <= 63 {
		return nil
	}
	return fmt.Errorf("%q is not a resource name: want domain/name", shortenText(s))
}

// allowEmpty is a check that accepts an empty text too.
func allowEmpty(check func(string) error) func(string) error {
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
	if !o.readList("models", func(path string, value any) {
		s, ok := value.(string)
		switch {
		case !ok:
			p.add(path, "is %s, want words of a product name", describeValue(value))
		case sharing.ModelWords(s) == "":
			p.add(path, "has no letter or digit: want words of a product name, such as A100-SXM4")
		default:
			m.Models = append(m.Models, s)
		}
	}) {
		o.requireField("models")
	} else if len(m.Models) == 0 && len(*p) == 0 {
		p.add(o.fieldPath("models"), "is an empty list: the entry never matches")
	}
	if !o.readList("allowedGeometries", func(path string, value any) {
		m.Geometries = append(m.Geometries, readGeometry(path, value, p, m.Geometries))
	}) {
		o.requireField("allowedGeometries")
	}
	if n := len(m.Geometries); n > wire.MaxGeometries {
		p.add(o.fieldPath("allowedGeometries"), "has %d groups, want at most %d: every placement looks at all of them", n, wire.MaxGeometries)
	}
	var policy sharing.PartitionPolicy
	if o.readPolicy("migPolicy", &policy) {
		m.Policy = &policy
	}
	o.reportUnknown()
	return m
}

// requireField notes a field that must be there, unless something is wrong with it.
func (o *object) requireField(name string) {
	if _, there := o.fields[name]; !there {
		o.p.add(o.fieldPath(name), "is missing")
	}
}

// readGeometry reads one group. before are the groups already read for these models.
func readGeometry(path string, value any, p *problems, before []sharing.Geometry) sharing.Geometry {
	var g sharing.Geometry
	o, ok := objectOf(value, path, p)
	if !ok {
		return g
	}
	o.readString("group", &g.Name, checkGroup)
	o.requireField("group")
	for i := range before {
		if g.Name != "" && before[i].Name == g.Name {
			p.add(o.fieldPath("group"), "%s is there twice for these models", g.Name)
		}
	}
	var total int64
	o.readList("geometries", func(path string, value any) {
		e := readGeometryEntry(path, value, p)
		g.Entries = append(g.Entries, e)
		if total += int64(e.Count); total > mostPartitions {
			p.add(path+".count", "the group has more than %d partitions", mostPartitions)
			total = 0
		}
	})
	o.requireField("geometries")
	if list, isList := o.fields["geometries"].([]any); isList && len(list) == 0 {
		p.add(o.fieldPath("geometries"), "is an empty list")
	}
	o.reportUnknown()
	return g
}

func checkGroup(s string) error {
	if s == mig.Free {
		return fmt.Errorf("%q is the name of what is there where no geometry is listed: take another", s)
	}
	if wire.ValidGroup(s) {
		return nil
	}
	return fmt.Errorf("%q is not a group name: it is part of the id uuid[group-position], so it must not be empty "+
		"or hold '-', '[', ']', a space or a separator", shortenText(s))
}

func readGeometryEntry(path string, value any, p *problems) sharing.GeometryEntry {
	var e sharing.GeometryEntry
	o, ok := objectOf(value, path, p)
	if !ok {
		return e
	}
	var memory, count int64
	o.readString("name", &e.Profile, checkProfile)
	o.requireField("name")
	o.readInt("memory", &memory, 1, mostMemory)
	o.requireField("memory")
	o.readInt("count", &count, 1, mostPartitions)
	o.requireField("count")
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
	return fmt.Errorf("%q is not a profile name: want the form 1g.10gb", shortenText(s))
}

// isNumber reports a whole number from 1 to 9999.
func isNumber(s string) bool {
	return s != "" && len(s) <= 4 && s[0] != '0' && strings.Trim(s, "0123456789") == ""
}
