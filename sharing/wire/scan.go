// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// maxDepth bounds how far a text may nest. Ours nest 7 levels.
const maxDepth = 32

// usualDepth is room for the paths of our formats.
const usualDepth = 8

// scanner walks over a text that is valid JSON and looks for what package json
// does not: an object at the top, keys that are there twice, and null. It exists
// because the token reader of package json takes ten times as long, and the
// scheduler reads the placements of all pods when it starts. The closing brace ends
// every step before the text does.
type scanner struct {
	format string
	text   []byte
	next   int
	path   []step
	// version is the top level's version as it is written.
	version string
}

// step is one part of a path: a key, or the index in a list.
type step struct {
	key   []byte
	index int
}

func (s *scanner) scan() error {
	s.path = make([]step, 0, usualDepth)
	s.skipSpace()
	if s.text[s.next] != '{' {
		return s.errorHere("is not a JSON object")
	}
	return s.scanValue()
}

func (s *scanner) errorHere(why string) error {
	var b strings.Builder
	for _, p := range s.path {
		switch {
		case len(p.key) == 0:
			b.WriteString("[" + strconv.Itoa(p.index) + "]")
		case b.Len() > 0:
			b.WriteString("." + string(p.key))
		default:
			b.Write(p.key)
		}
	}
	place := bytePosition(s.next)
	if b.Len() > 0 {
		place = quoteExcerpt(b.String()) + " (" + place + ")"
	}
	return &Error{s.format, place, why}
}

func (s *scanner) skipSpace() {
	for strings.IndexByte(" \t\r\n", s.text[s.next]) >= 0 {
		s.next++
	}
}

func (s *scanner) scanValue() error {
	s.skipSpace()
	if len(s.path) > maxDepth {
		return s.errorHere("nests too deep")
	}
	switch s.text[s.next] {
	case '{':
		return s.scanObject()
	case '[':
		return s.scanArray()
	case '"':
		s.scanString()
	case 'n':
		return s.errorHere("is null")
	default:
		for strings.IndexByte(",]} \t\r\n", s.text[s.next]) < 0 {
			s.next++
		}
	}
	return nil
}

// scanString walks over a string and returns it with its quotes.
func (s *scanner) scanString() []byte {
	start := s.next
	for s.next++; s.text[s.next] != '"'; s.next++ {
		if s.text[s.next] == '\\' {
			s.next++
		}
	}
	s.next++
	return s.text[start:s.next]
}

func (s *scanner) scanKey() []byte {
	q := s.scanString()
	if !slices.Contains(q, '\\') {
		return q[1 : len(q)-1]
	}
	var key string
	_ = json.Unmarshal(q, &key) // it is valid JSON
	return []byte(key)
}

func (s *scanner) scanObject() error {
	var seen keySet
	s.next++
	for {
		s.skipSpace()
		if s.text[s.next] == '}' {
			s.next++
			return nil
		}
		if s.text[s.next] == ',' {
			s.next++
			s.skipSpace()
		}
		key := s.scanKey()
		s.path = append(s.path, step{key: key})
		if !seen.addNew(key) {
			return s.errorHere("is there twice")
		}
		s.skipSpace()
		s.next++ // the colon
		s.skipSpace()
		from := s.next
		if err := s.scanValue(); err != nil {
			return err
		}
		if len(s.path) == 1 && bytes.EqualFold(key, []byte("version")) {
			s.version = string(s.text[from:s.next])
		}
		s.path = s.path[:len(s.path)-1]
	}
}

func (s *scanner) scanArray() error {
	s.next++
	for i := 0; ; i++ {
		s.skipSpace()
		if s.text[s.next] == ']' {
			s.next++
			return nil
		}
		if s.text[s.next] == ',' {
			s.next++
		}
		s.path = append(s.path, step{index: i})
		if err := s.scanValue(); err != nil {
			return err
		}
		s.path = s.path[:len(s.path)-1]
	}
}

// keySet are the keys of one object. Package json ignores case when it looks for
// the field of a key, so two spellings are the same key.
type keySet struct {
	few  [16][]byte
	n    int
	many map[string]struct{}
}

// addNew notes a key; false if it is there already.
func (k *keySet) addNew(key []byte) bool {
	for _, other := range k.few[:k.n] {
		if bytes.EqualFold(key, other) {
			return false
		}
	}
	if k.n < len(k.few) {
		k.few[k.n] = key
		k.n++
		return true
	}
	if k.many == nil {
		k.many = map[string]struct{}{}
	}
	// Up and down again joins the letters that have more than two forms.
	folded := strings.ToLower(strings.ToUpper(string(key)))
	_, twice := k.many[folded]
	k.many[folded] = struct{}{}
	return !twice
}
