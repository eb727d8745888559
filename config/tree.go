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

// maxTextBytes is the longest text that is looked at: what the API server accepts as
// one ConfigMap.
const maxTextBytes = 1 << 20

// problems collects every mistake of one text.
type problems []Problem

func (p *problems) add(path, format string, args ...any) {
	*p = append(*p, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

// parseYAML turns YAML, of which JSON is a part, into maps, lists and scalars. Keys
// that are there twice are problems but do not end the reading, so that the rest
// is checked too.
func parseYAML(data []byte, p *problems) (any, bool) {
	if len(data) > maxTextBytes {
		p.add("", "is %d bytes long, more than %d", len(data), maxTextBytes)
		return nil, false
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		addSyntaxErrors(err, p)
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

// addSyntaxErrors turns the error of the YAML reader, one line for each mistake, into
// problems.
func addSyntaxErrors(err error, p *problems) {
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
	tree, ok := parseYAML(data, p)
	if !ok {
		return nil, false
	}
	return objectOf(tree, "", p)
}

// objectOf reads a map; false, with a problem noted, if it is none.
func objectOf(value any, path string, p *problems) (*object, bool) {
	fields, ok := value.(map[string]any)
	if !ok {
		p.add(path, "is %s, want a map", describeValue(value))
		return nil, false
	}
	return &object{path: path, fields: fields, p: p}, true
}

func (o *object) fieldPath(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

// readField returns a field that is there. A field without a value is a problem: it
// is not clear whether it means the default or nothing.
func (o *object) readField(name string) (any, bool) {
	o.known = append(o.known, name)
	value, ok := o.fields[name]
	if ok && value == nil {
		o.p.add(o.fieldPath(name), "has no value: give one or remove the field")
		return nil, false
	}
	return value, ok
}

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
			o.p.add(o.fieldPath(name), "is not known: write %s", o.known[i])
		} else {
			o.p.add(o.fieldPath(name), "is not known: want one of %s", strings.Join(o.known, ", "))
		}
	}
}

// readString reads a string into dst if it is there and passes the check.
func (o *object) readString(name string, dst *string, check func(string) error) {
	value, ok := o.readField(name)
	if !ok {
		return
	}
	s, ok := value.(string)
	if !ok {
		o.p.add(o.fieldPath(name), "is %s, want a text", describeValue(value))
		return
	}
	if err := check(s); err != nil {
		o.p.add(o.fieldPath(name), "%v", err)
		return
	}
	*dst = s
}

func (o *object) readBool(name string, dst *bool) {
	value, ok := o.readField(name)
	if !ok {
		return
	}
	b, ok := value.(bool)
	if !ok {
		o.p.add(o.fieldPath(name), "is %s, want true or false", describeValue(value))
		return
	}
	*dst = b
}

// readChoice reads one of two words; dst becomes whether it is the second.
func (o *object) readChoice(name string, dst *bool, no, yes string) {
	word := no
	if *dst {
		word = yes
	}
	o.readString(name, &word, func(s string) error {
		if s == no || s == yes {
			return nil
		}
		return fmt.Errorf("%q is not known: want %s or %s", shortenText(s), no, yes)
	})
	*dst = word == yes
}

// readInt reads an integer from low to high.
func (o *object) readInt(name string, dst *int64, low, high int64) bool {
	value, ok := o.readField(name)
	if !ok {
		return false
	}
	n, ok := parseInteger(value, o.fieldPath(name), o.p, low, high)
	if ok {
		*dst = n
	}
	return ok
}

// parseInteger reads one integer; false, with a problem noted, if it is none.
func parseInteger(value any, path string, p *problems, low, high int64) (int64, bool) {
	number, ok := value.(json.Number)
	if !ok {
		p.add(path, "is %s, want a whole number", describeValue(value))
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

// readFloat reads a number above low, or equal to it if zero is allowed, up to high.
func (o *object) readFloat(name string, dst *float64, zero bool) {
	value, ok := o.readField(name)
	if !ok {
		return
	}
	number, ok := value.(json.Number)
	if !ok {
		o.p.add(o.fieldPath(name), "is %s, want a number", describeValue(value))
		return
	}
	f, err := number.Float64()
	if err != nil || f < 0 || f > mostScaling || f == 0 && !zero {
		o.p.add(o.fieldPath(name), "%s is outside 0 to %d", number, mostScaling)
		return
	}
	*dst = f
}

// readList calls read for every member of a list, if the field is there. It reports
// whether it was.
func (o *object) readList(name string, read func(path string, value any)) bool {
	value, ok := o.readField(name)
	if !ok {
		return false
	}
	list, ok := value.([]any)
	if !ok {
		o.p.add(o.fieldPath(name), "is %s, want a list", describeValue(value))
		return false
	}
	for i, member := range list {
		read(o.fieldPath(name)+"["+strconv.Itoa(i)+"]", member)
	}
	return true
}

func describeValue(value any) string {
	switch v := value.(type) {
	case nil:
		return "empty"
	case string:
		return "the text " + strconv.Quote(shortenText(v))
	case json.Number:
		return "the number " + shortenText(v.String())
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	}
	return "a map"
}

func shortenText(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}
