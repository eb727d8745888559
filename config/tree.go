// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// longest is the longest text that is looked at: what the API server accepts as
// one ConfigMap.
const longest = 1 << 20

// problems collects every mistake of one text.
type problems []Problem

func (p *problems) add(path, format string, args ...any) {
	*p = append(*p, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

// parse turns YAML, of which JSON is a part, into maps, lists and scalars. Keys
// that are there twice are problems but do not end the reading, so that the rest
// is checked too.
func parse(data []byte, p *problems) (any, bool) {
	if len(data) > longest {
		p.add("", "is %d bytes long, more than %d", len(data), longest)
		return nil, false
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		syntax(err, p)
		if text, err = yaml.YAMLToJSON(data); err != nil {
			return nil, false
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		p.add("", "cannot be read: %v", err)
		return nil, false
	}
	if tree == nil {
		p.add("", "is empty")
		return nil, false
	}
	return tree, true
}

// syntax turns the error of the YAML reader, one line for each mistake, into
// problems.
func syntax(err error, p *problems) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		line = strings.TrimPrefix(strings.TrimSpace(line), "error converting YAML to JSON: ")
		line = strings.TrimPrefix(line, "yaml: ")
		if line == "" || strings.HasSuffix(line, "unmarshal errors:") {
			continue
		}
		if where, what, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(where, "line ") {
			p.add(where, "%s", what)
		} else {
			p.add("", "%s", line)
		}
	}
}

// object is a map that is being read. Fields nobody asked for are unknown.
type object struct {
	path   string
	fields map[string]any
	known  []string
	p      *problems
}

// rootOf reads a text whose outermost value is a map.
func rootOf(data []byte, p *problems) (*object, bool) {
	tree, ok := parse(data, p)
	if !ok {
		return nil, false
	}
	return objectOf(tree, "", p)
}

// objectOf reads a map; false, with a problem noted, if it is none.
func objectOf(value any, path string, p *problems) (*object, bool) {
	fields, ok := value.(map[string]any)
	if !ok {
		p.add(path, "is %s, want a map", describe(value))
		return nil, false
	}
	return &object{path: path, fields: fields, p: p}, true
}

func (o *object) at(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

// field returns a field that is there. A field without a value is a problem: it
// is not clear whether it means the default or nothing.
func (o *object) field(name string) (any, bool) {
	o.known = append(o.known, name)
	value, ok := o.fields[name]
	if ok && value == nil {
		o.p.add(o.at(name), "has no value: give one or remove the field")
		return nil, false
	}
	return value, ok
}

// reportUnknown notes the fields that nobody asked for.
func (o *object) reportUnknown() {
	var unknown []string
	for name := range o.fields {
		if !slices.Contains(o.known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		i := slices.IndexFunc(o.known, func(k string) bool { return strings.EqualFold(k, name) })
		if i >= 0 {
			o.p.add(o.at(name), "is not known: write %s", o.known[i])
		} else {
			o.p.add(o.at(name), "is not known: want one of %s", strings.Join(o.known, ", "))
		}
	}
}

// text reads a string into dst if it is there and passes the check.
func (o *object) text(name string, dst *string, check func(string) error) {
	value, ok := o.field(name)
	if !ok {
		return
	}
	s, ok := value.(string)
	if !ok {
		o.p.add(o.at(name), "is %s, want a text", describe(value))
		return
	}
	if err := check(s); err != nil {
		o.p.add(o.at(name), "%v", err)
		return
	}
	*dst = s
}

func (o *object) boolean(name string, dst *bool) {
	value, ok := o.field(name)
	if !ok {
		return
	}
	b, ok := value.(bool)
	if !ok {
		o.p.add(o.at(name), "is %s, want true or false", describe(value))
		return
	}
	*dst = b
}

// choice reads one of two words; dst becomes whether it is the second.
func (o *object) choice(name string, dst *bool, no, yes string) {
	word := no
	if *dst {
		word = yes
	}
	o.text(name, &word, func(s string) error {
		if s == no || s == yes {
			return nil
		}
		return fmt.Errorf("%q is not known: want %s or %s", shorten(s), no, yes)
	})
	*dst = word == yes
}

// whole reads an integer from low to high.
func (o *object) whole(name string, dst *int64, low, high int64) bool {
	value, ok := o.field(name)
	if !ok {
		return false
	}
	n, ok := integer(value, o.at(name), o.p, low, high)
	if ok {
		*dst = n
	}
	return ok
}

// integer reads one integer; false, with a problem noted, if it is none.
func integer(value any, path string, p *problems, low, high int64) (int64, bool) {
	number, ok := value.(json.Number)
	if !ok {
		p.add(path, "is %s, want a whole number", describe(value))
		return 0, false
	}
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if err != nil {
		p.add(path, "%s is not a whole number from %d to %d", number, low, high)
		return 0, false
	}
	if n < low || n > high {
		p.add(path, "%d is outside %d to %d", n, low, high)
		return 0, false
	}
	return n, true
}

// fraction reads a number above low, or equal to it if zero is allowed, up to high.
func (o *object) fraction(name string, dst *float64, zero bool) {
	value, ok := o.field(name)
	if !ok {
		return
	}
	number, ok := value.(json.Number)
	if !ok {
		o.p.add(o.at(name), "is %s, want a number", describe(value))
		return
	}
	f, err := number.Float64()
	if err != nil || f < 0 || f > mostScaling || f == 0 && !zero {
		o.p.add(o.at(name), "%s is outside 0 to %d", number, mostScaling)
		return
	}
	*dst = f
}

// each calls read for every member of a list, if the field is there. It reports
// whether it was.
func (o *object) each(name string, read func(path string, value any)) bool {
	value, ok := o.field(name)
	if !ok {
		return false
	}
	list, ok := value.([]any)
	if !ok {
		o.p.add(o.at(name), "is %s, want a list", describe(value))
		return false
	}
	for i, member := range list {
		read(o.at(name)+"["+strconv.Itoa(i)+"]", member)
	}
	return true
}

// describe names what a value is, for people.
func describe(value any) string {
	switch v := value.(type) {
	case nil:
		return "empty"
	case string:
		return "the text " + strconv.Quote(shorten(v))
	case json.Number:
		return "the number " + shorten(v.String())
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	}
	return "a map"
}

// shorten cuts a foreign text to a bearable length.
func shorten(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}
