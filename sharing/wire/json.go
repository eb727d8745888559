// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// version is the version of both JSON formats.
const version = 1

// deepest bounds how far a text may nest. Ours nest 7 levels.
const deepest = 32

// parse reads JSON into a structure: one object, no key twice in any spelling,
// no null, nothing behind it, and version 1. Package json alone would let each
// of these pass and keep the last of two values.
func parse(format, text string, into any) error {
	if len(text) > MaxText {
		return &Error{format, "", "is " + strconv.Itoa(len(text)) + " bytes long, more than " + strconv.Itoa(MaxText)}
	}
	if !utf8.ValidString(text) {
		return &Error{format, "", "is not valid UTF-8"}
	}
	if err := structure(format, text); err != nil {
		return err
	}
	var v struct {
		Version *int `json:"version"`
	}
	if err := unmarshal(format, text, &v); err != nil {
		return err
	}
	if v.Version == nil {
		return &Error{format, "version", "is missing"}
	}
	if *v.Version != version {
		return &Error{format, "version", strconv.Itoa(*v.Version) + " is not known, this reader knows " + strconv.Itoa(version)}
	}
	return unmarshal(format, text, into)
}

func unmarshal(format, text string, into any) error {
	err := json.Unmarshal([]byte(text), into)
	var wrongType *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrongType):
		place := at(int(wrongType.Offset))
		if wrongType.Field != "" {
			place = wrongType.Field + " (" + place + ")"
		}
		return &Error{format, place, "is a " + wrongType.Value + ", want " + wrongType.Type.String()}
	}
	return &Error{format, "", err.Error()}
}

// structure checks what does not depend on the format.
func structure(format, text string) error {
	w := walker{format: format, d: json.NewDecoder(strings.NewReader(text))}
	w.d.UseNumber()
	if !strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") {
		return w.wrong("", "is not a JSON object")
	}
	if err := w.value("", 0); err != nil {
		return err
	}
	if _, err := w.d.Token(); err != io.EOF {
		return w.wrong("", "something follows the object")
	}
	return nil
}

type walker struct {
	format string
	d      *json.Decoder
}

func (w *walker) wrong(path, why string) error {
	place := at(int(w.d.InputOffset()))
	if path != "" {
		place = path + " (" + place + ")"
	}
	return &Error{w.format, place, why}
}

func (w *walker) value(path string, depth int) error {
	if depth > deepest {
		return w.wrong("", "nests too deep")
	}
	token, err := w.d.Token()
	if err != nil {
		return w.broken(err)
	}
	switch token {
	case nil:
		return w.wrong(path, "is null")
	case json.Delim('{'):
		return w.object(path, depth)
	case json.Delim('['):
		return w.array(path, depth)
	}
	return nil
}

func (w *walker) object(path string, depth int) error {
	seen := map[string]struct{}{}
	for w.d.More() {
		token, err := w.d.Token()
		if err != nil {
			return w.broken(err)
		}
		key, _ := token.(string)
		below := key
		if path != "" {
			below = path + "." + key
		}
		// Package json ignores case when it looks for the field of a key, so two
		// spellings are the same key. Up and down again joins the letters that
		// have more than two forms.
		folded := strings.ToLower(strings.ToUpper(key))
		if _, twice := seen[folded]; twice {
			return w.wrong(shown(below), "is there twice")
		}
		seen[folded] = struct{}{}
		if err := w.value(below, depth+1); err != nil {
			return err
		}
	}
	return w.closing()
}

func (w *walker) array(path string, depth int) error {
	for i := 0; w.d.More(); i++ {
		if err := w.value(path+"["+strconv.Itoa(i)+"]", depth+1); err != nil {
			return err
		}
	}
	return w.closing()
}

func (w *walker) closing() error {
	if _, err := w.d.Token(); err != nil {
		return w.broken(err)
	}
	return nil
}

func (w *walker) broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return w.wrong("", "the text ends too early")
	}
	return w.wrong("", err.Error())
}

// render writes a structure as JSON.
func render(format string, from any) (string, error) {
	b, err := json.Marshal(from)
	if err != nil {
		return "", &Error{format, "", err.Error()}
	}
	return string(b), nil
}
