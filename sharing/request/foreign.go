// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// Foreign returns what of a pod looks like a wish about devices and is read by nobody: resources,
// annotations and labels of our families that do not exist, those of HAMi and of Volcano's older
// GPU sharing, and ours in the wrong place. Each mistake says what to write. The scheduler and the
// webhook ask it, so that no such wish is dropped without a word. The device plugin does not: what
// a scheduler has placed may go on.
func (rules Rules) Foreign(p *podspec.Pod) []Mistake {
	r := reader{Rules: rules}
	for path, c := range containersOf(p) {
		for _, name := range slices.Sorted(maps.Keys(c.Resources)) {
			if c.Resources[name] != 0 && r.Names.IsUnserved(name) {
				r.addMistake(limitPath(path, name), r.insteadOfResource(name))
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
		if !isRead(key) && r.isWish(key) {
			r.addMistake(annotationPath(key), r.insteadOfKey(key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		switch {
		case slices.Contains(wire.UserKeys(), key):
			r.addMistake("metadata.labels["+key+"]", "is a label, which is not read: write it as an annotation")
		case !isRead(key) && r.isWish(key):
			r.addMistake("metadata.labels["+key+"]", r.insteadOfKey(key))
		}
	}
	return r.mistakes
}

// isRead reports whether an annotation of a pod is read, or is written by our own parts.
func isRead(key string) bool {
	return slices.Contains(wire.UserKeys(), key) || slices.Contains(wire.WrittenKeys(), key)
}

// isWish reports whether somebody who writes a key wants something of devices.
func (r *reader) isWish(key string) bool {
	_, foreign := wire.ForeignKey(key)
	return foreign || wire.IsOfFamily(key) || r.isResource(key)
}

// isResource reports whether a key is the name of a resource, served or not.
func (r *reader) isResource(name string) bool {
	_, foreign := wire.ForeignResource(name)
	return foreign || slices.Contains(r.Names.Existing(), name) || slices.Contains(podspec.DefaultNames().Existing(), name)
}

// insteadOfResource says what is wrong with a resource that is not served, and what to write.
func (r *reader) insteadOfResource(name string) string {
	if f, ok := wire.ForeignResource(name); ok {
		if now := r.Names.InForce(f.Instead); now != "" {
			return fmt.Sprintf("is a name of %s, which is not served here: write %s", f.Of, now)
		}
		return fmt.Sprintf("is a name of %s, and there is nothing like it here: remove it", f.Of)
	}
	if slices.Contains(podspec.DefaultNames().Existing(), name) {
		if now := r.Names.InForce(name); now != "" {
			return "is named " + now + " in this cluster: write that"
		}
		return "is not offered in this cluster: remove it"
	}
	return "is no resource: " + suggestName(name, r.Names.Existing())
}

// insteadOfKey says what is wrong with an annotation or label that is not read, and what to write.
func (r *reader) insteadOfKey(key string) string {
	if f, ok := wire.ForeignKey(key); ok {
		if f.Instead != "" {
			return fmt.Sprintf("is a name of %s, which is not read here: write the annotation %s", f.Of, f.Instead)
		}
		return fmt.Sprintf("is a name of %s, and there is nothing like it here: remove it", f.Of)
	}
	if !r.isResource(key) {
		return "is not known: " + suggestName(key, wire.UserKeys())
	}
	name := key
	if f, ok := wire.ForeignResource(key); ok {
		name = f.Instead
	}
	if !slices.Contains(r.Names.Existing(), name) {
		name = r.Names.InForce(name)
	}
	if name == "" {
		return "is not a resource of this cluster: remove it"
	}
	return "is not read here, it is a resource: write " + name + " below resources.limits of a container"
}

// suggestName returns the one name that is nearly the written one, whatever its domain, or else
// all names.
func suggestName(written string, names []string) string {
	const few = 3 // letters: more changes make any name of any other
	best, least := "", few+1
	_, local, _ := strings.Cut(strings.ToLower(written), "/")
	for _, name := range names {
		_, other, _ := strings.Cut(name, "/")
		if d := editDistance(local, other, few); d < least {
			best, least = name, d
		}
	}
	if best != "" {
		return "do you mean " + best + "?"
	}
	return "want one of " + strings.Join(names, ", ")
}

// editDistance is how many letters have to be added, removed or replaced to make one text of the
// other (Levenshtein). Texts whose lengths differ by more than most are not compared.
func editDistance(a, b string, most int) int {
	if max(len(a), len(b))-min(len(a), len(b)) > most {
		return most + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
