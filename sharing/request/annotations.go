// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"slices"
	"strings"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// Annotations returns the keys of all annotations that Read reads: those that users write, and
// those by which controllers name a group. Whoever keeps a part of a pod to read it later keeps
// these.
func Annotations() []string {
	return append(wire.UserKeys(), wire.GroupName, wire.VolcanoGroupName)
}

// texts are the annotations of a pod. Those that Annotations does not name cannot be read, so that
// its list is complete.
type texts map[string]string

func (t texts) get(key string) (string, bool) {
	if key != wire.GroupName && key != wire.VolcanoGroupName && !slices.Contains(wire.UserKeys(), key) {
		return "", false
	}
	text, ok := t[key]
	return text, ok
}

// annotations reads what the user says about the whole pod.
func (r *reader) annotations(p *podspec.Pod, out *sharing.PodRequest) {
	a := texts(p.Annotations)
	out.Modes = r.modes(a)
	out.Selector = sharing.Selector{
		UseModels: r.list(a, wire.UserUseModels, model),
		NotModels: r.list(a, wire.UserNotModels, model),
		UseIDs:    ids(r.list(a, wire.UserUseIDs, uuid)),
		NotIDs:    ids(r.list(a, wire.UserNotIDs, uuid)),
	}
	for _, id := range out.Selector.UseIDs {
		if slices.Contains(out.Selector.NotIDs, id) {
			r.mistake(at(wire.UserNotIDs), fmt.Sprintf("%s is also in %s", id, wire.UserUseIDs))
		}
	}
	out.Policy = r.policy(a)
	if split, ok := a.get(wire.UserSplit); ok && split != wire.SplitEven {
		r.mistake(at(wire.UserSplit), fmt.Sprintf("unknown split %q: want %s", split, wire.SplitEven))
	}
	if numa, ok := a.get(wire.UserNUMA); ok {
		if out.OneNUMA = numa == wire.NUMASingle; !out.OneNUMA {
			r.mistake(at(wire.UserNUMA), fmt.Sprintf("unknown value %q: want %s", numa, wire.NUMASingle))
		}
	}
	out.Group = r.group(p)
}

// modes reads the list of accepted modes. Spaces are not forgiven, as everywhere
// where modes are read: a mode that is not understood must not become another.
func (r *reader) modes(a texts) []sharing.Mode {
	text, ok := a.get(wire.UserMode)
	if !ok {
		return nil
	}
	if strings.TrimSpace(text) == "" {
		r.mistake(at(wire.UserMode), "is empty: write one mode, or several with commas in order of preference, or leave the annotation out")
		return nil
	}
	var modes []sharing.Mode
	for i, item := range strings.Split(text, ",") {
		if item == "" {
			r.mistake(at(wire.UserMode), fmt.Sprintf("item %d is empty", i+1))
			continue
		}
		mode, err := sharing.ParseMode(item)
		switch {
		case err != nil:
			r.mistake(at(wire.UserMode), err.Error())
		case slices.Contains(modes, mode):
			r.mistake(at(wire.UserMode), fmt.Sprintf("%s is there twice", mode))
		default:
			modes = append(modes, mode)
		}
	}
	return modes
}

// list reads a comma list. Spaces around its items are dropped; check returns what is
// wrong with an item.
func (r *reader) list(a texts, key string, check func(string) string) []string {
	text, ok := a.get(key)
	if !ok {
		return nil
	}
	var items []string
	for i, item := range strings.Split(text, ",") {
		item = strings.TrimSpace(item)
		switch {
		case item == "":
			r.mistake(at(key), fmt.Sprintf("item %d is empty", i+1))
			continue
		case slices.Contains(items, item):
			r.mistake(at(key), fmt.Sprintf("%q is there twice", item))
			continue
		}
		if wrong := check(item); wrong != "" {
			r.mistake(at(key), wrong)
			continue
		}
		items = append(items, item)
	}
	return items
}

// model says what is wrong with the name of a model.
func model(s string) string {
	if sharing.ModelWords(s) == "" {
		return fmt.Sprintf("%q names no model: it has no letter or digit", s)
	}
	return ""
}

// uuid says what is wrong with a device UUID.
func uuid(s string) string {
	if rest, ok := strings.CutPrefix(s, "GPU-"); ok && rest != "" && len(s) <= 128 &&
		strings.Trim(rest, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == "" {
		return ""
	}
	return fmt.Sprintf("%q is not a device UUID: want GPU- and the rest, as nvidia-smi -L prints it", s)
}

func ids(items []string) []sharing.DeviceID {
	var out []sharing.DeviceID
	for _, item := range items {
		out = append(out, sharing.DeviceID(item))
	}
	return out
}

func (r *reader) policy(a texts) string {
	name, ok := a.get(wire.UserPolicy)
	switch {
	case !ok:
		return ""
	case r.policies != nil && !slices.Contains(r.policies, name):
		r.mistake(at(wire.UserPolicy), fmt.Sprintf("unknown policy %q: want one of %s", name, strings.Join(r.policies, ", ")))
		return ""
	case name == "" || len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		r.mistake(at(wire.UserPolicy), fmt.Sprintf("%q is not a policy name", name))
		return ""
	}
	return name
}

// group is the pod's group, if the pod wants it spread over devices. A pod that
// has no group yet is spread as soon as a controller has given it one.
func (r *reader) group(p *podspec.Pod) string {
	a := texts(p.Annotations)
	policy, ok := a.get(wire.UserGroupPolicy)
	if !ok {
		return ""
	}
	if policy != wire.GroupSpread {
		r.mistake(at(wire.UserGroupPolicy), fmt.Sprintf("unknown policy %q: want %s", policy, wire.GroupSpread))
		return ""
	}
	for _, key := range []string{wire.GroupName, wire.VolcanoGroupName} {
		if name, _ := a.get(key); name != "" && p.Namespace != "" {
			return p.Namespace + "/" + name
		} else if name != "" {
			return name
		}
	}
	return ""
}

func at(key string) string { return "metadata.annotations[" + key + "]" }
