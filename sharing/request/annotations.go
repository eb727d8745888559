// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"slices"
	"strings"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/wire"
)

// Annotations returns the keys of all annotations that Read reads: those that users write, and
// those by which controllers name a group. Whoever keeps a part of a pod to read it later keeps
// these.
func Annotations() []string {
	return append(wire.UserKeys(), wire.GroupName, wire.VolcanoGroupName)
}

// podAnnotations are the annotations of a pod. Those that Annotations does not name cannot be read,
// so that its list is complete.
type podAnnotations map[string]string

func (t podAnnotations) lookupKnown(key string) (string, bool) {
	if key != wire.GroupName && key != wire.VolcanoGroupName && !slices.Contains(wire.UserKeys(), key) {
		return "", false
	}
	text, ok := t[key]
	return text, ok
}

func (r *reader) readAnnotations(p *podspec.Pod, out *sharing.PodRequest) {
	a := podAnnotations(p.Annotations)
	out.Modes = r.readModes(a)
	out.Selector = sharing.Selector{
		UseModels: r.readList(a, wire.UserUseModels, checkModel),
		NotModels: r.readList(a, wire.UserNotModels, checkModel),
		UseIDs:    deviceIDs(r.readList(a, wire.UserUseIDs, checkUUID)),
		NotIDs:    deviceIDs(r.readList(a, wire.UserNotIDs, checkUUID)),
		Virtual:   r.readVirtual(a),
	}
	for _, id := range out.Selector.UseIDs {
		if slices.Contains(out.Selector.NotIDs, id) {
			r.addMistake(annotationPath(wire.UserNotIDs), fmt.Sprintf("%s is also in %s", id, wire.UserUseIDs))
		}
	}
	out.Policy = r.readPolicy(a)
	if split, ok := a.lookupKnown(wire.UserSplit); ok && split != wire.SplitEven {
		r.addMistake(annotationPath(wire.UserSplit), fmt.Sprintf("unknown split %q: want %s", split, wire.SplitEven))
	}
	if numa, ok := a.lookupKnown(wire.UserNUMA); ok {
		if out.OneNUMA = numa == wire.NUMASingle; !out.OneNUMA {
			r.addMistake(annotationPath(wire.UserNUMA), fmt.Sprintf("unknown value %q: want %s", numa, wire.NUMASingle))
		}
	}
	out.Neighbours = r.readNeighbours(p)
	r.readMovability(a)
}

// readModes reads the list of accepted modes. Spaces are not forgiven, as everywhere
// where modes are read: a mode that is not understood must not become another.
func (r *reader) readModes(a podAnnotations) []sharing.Mode {
	text, ok := a.lookupKnown(wire.UserMode)
	if !ok {
		return nil
	}
	if strings.TrimSpace(text) == "" {
		r.addMistake(annotationPath(wire.UserMode), "is empty: write one mode, or several with commas in order of preference, or leave the annotation out")
		return nil
	}
	var modes []sharing.Mode
	for i, item := range strings.Split(text, ",") {
		if item == "" {
			r.addMistake(annotationPath(wire.UserMode), fmt.Sprintf("item %d is empty", i+1))
			continue
		}
		mode, err := sharing.ParseMode(item)
		switch {
		case err != nil:
			r.addMistake(annotationPath(wire.UserMode), err.Error())
		case slices.Contains(modes, mode):
			r.addMistake(annotationPath(wire.UserMode), fmt.Sprintf("%s is there twice", mode))
		default:
			modes = append(modes, mode)
		}
	}
	return modes
}

// readList reads a comma list. Spaces around its items are dropped; check returns what is
// wrong with an item.
func (r *reader) readList(a podAnnotations, key string, check func(string) string) []string {
	text, ok := a.lookupKnown(key)
	if !ok {
		return nil
	}
	var items []string
	for i, item := range strings.Split(text, ",") {
		item = strings.TrimSpace(item)
		switch {
		case item == "":
			r.addMistake(annotationPath(key), fmt.Sprintf("item %d is empty", i+1))
			continue
		case slices.Contains(items, item):
			r.addMistake(annotationPath(key), fmt.Sprintf("%q is there twice", item))
			continue
		}
		if wrong := check(item); wrong != "" {
			r.addMistake(annotationPath(key), wrong)
			continue
		}
		items = append(items, item)
	}
	return items
}

func checkModel(s string) string {
	if sharing.ModelWords(s) == "" {
		return fmt.Sprintf("%q names no model: it has no letter or digit", s)
	}
	return ""
}

func checkUUID(s string) string {
	if rest, ok := strings.CutPrefix(s, "GPU-"); ok && rest != "" && len(s) <= 128 &&
		strings.Trim(rest, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == "" {
		return ""
	}
	return fmt.Sprintf("%q is not a device UUID: want GPU- and the rest, as nvidia-smi -L prints it", s)
}

func deviceIDs(items []string) []sharing.DeviceID {
	var out []sharing.DeviceID
	for _, item := range items {
		out = append(out, sharing.DeviceID(item))
	}
	return out
}

func (r *reader) readPolicy(a podAnnotations) string {
	name, ok := a.lookupKnown(wire.UserPolicy)
	if known := policy.Names(); ok && !slices.Contains(known, name) {
		r.addMistake(annotationPath(wire.UserPolicy), fmt.Sprintf("unknown policy %q: want one of %s", name, strings.Join(known, ", ")))
		return ""
	}
	return name
}

func (r *reader) readVirtual(a podAnnotations) sharing.VirtualRule {
	text, ok := a.lookupKnown(wire.UserVirtual)
	switch {
	case !ok:
		return sharing.VirtualOrNot
	case text == wire.VirtualNever:
		return sharing.NeverVirtual
	case text == wire.VirtualOnly:
		return sharing.OnlyVirtual
	}
	r.addMistake(annotationPath(wire.UserVirtual), fmt.Sprintf("unknown value %q: want %s or %s", text, wire.VirtualNever, wire.VirtualOnly))
	return sharing.VirtualOrNot
}

func annotationPath(key string) string { return "metadata.annotations[" + key + "]" }
