// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf8"
)

// version is the version of both JSON formats.
const version = 1

// parseJSON reads JSON into a structure: one object, no key twice in any spelling,
// no null, and version 1. Package json alone would let each of these pass and
// keep the last of two values.
func parseJSON(format, text string, into any) error {
	if len(text) > MaxText {
		return &Error{format, "", "is " + strconv.Itoa(len(text)) + " bytes long, more than " + strconv.Itoa(MaxText)}
	}
	if !utf8.ValidString(text) {
		return &Error{format, "", "is not valid UTF-8"}
	}
	raw := []byte(text)
	read := json.Unmarshal(raw, into)
	if read != nil && !json.Valid(raw) {
		return wrapJSONError(format, len(raw), read)
	}
	s := scanner{format: format, text: raw}
	if err := s.scan(); err != nil {
		return err
	}
	switch s.version {
	case strconv.Itoa(version):
		return wrapJSONError(format, len(raw), read)
	case "":
		return &Error{format, "version", "is missing"}
	}
	return &Error{format, "version", s.version + " is not known, this reader knows " + strconv.Itoa(version)}
}

// wrapJSONError says in which format and where package json found one; nil if it found none.
func wrapJSONError(format string, length int, err error) error {
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrongType):
		place := bytePosition(int(wrongType.Offset))
		if wrongType.Field != "" {
			place = wrongType.Field + " (" + place + ")"
		}
		return &Error{format, place, "is a " + wrongType.Value + ", want " + wrongType.Type.String()}
	case errors.As(err, &syntax) && int(syntax.Offset) >= length:
		return &Error{format, bytePosition(length), "the text ends too early"}
	case errors.As(err, &syntax):
		return &Error{format, bytePosition(int(syntax.Offset)), syntax.Error()}
	}
	return &Error{format, "", err.Error()}
}

func renderJSON(format string, from any) (string, error) {
	b, err := json.Marshal(from)
	if err != nil {
		return "", &Error{format, "", err.Error()}
	}
	return string(b), nil
}
