// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"deviceshare/sharing"
)

const id = "GPU-11111111-2222-3333-4444-555555555555"

func requests() []Request {
	return []Request{
		{Version: Version},
		{Version: Version, Start: &Daemon{Device: id, Directory: "/run/nvidia/mps/" + id}},
		{Version: Version, Start: &Daemon{Device: id, Directory: "/a b/ü/" + id, MultiUser: true, Partitioned: true}},
	}
}

func answers() []Answer {
	return []Answer{
		{Version: Version, Refused: "no\n\"<memory>\""},
		{Version: Version, State: &State{Directories: "/run/nvidia/mps", Running: []Process{}, Ended: []End{}}},
		{Version: Version, State: &State{Directories: "/x", IsEnding: true, Running: []Process{{id, 7}}, Ended: []End{{Process{id, 6}, "it was killed"}}}},
	}
}

func TestWhatIsWrittenIsReadAsTheSame(t *testing.T) {
	for _, r := range requests() {
		if got, err := ReadRequest(r.Encode()); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%s is read as %+v, %v", r.Encode(), got, err)
		}
	}
	for _, a := range answers() {
		if got, err := ReadAnswer(a.Encode()); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%s is read as %+v, %v", a.Encode(), got, err)
		}
	}
}

func TestARequestThatADevicePluginDoesNotWriteIsRefused(t *testing.T) {
	start := func(device, directory string) string {
		return string(Request{Version: Version, Start: &Daemon{Device: sharing.DeviceID(device), Directory: directory}}.Encode())
	}
	for text, want := range map[string]string{
		"":                                "unexpected end",
		"\n":                              "unexpected end",
		"null\n":                          "version 0",
		"[1]\n":                           "cannot unmarshal",
		`{"version":1}`:                   "not written as",
		`{"version":1} ` + "\n":           "not written as",
		`{"version":1}{}` + "\n":          "invalid character",
		`{"version":1,"x":1}`:             "unknown field",
		`{"Version":1}` + "\n":            "not written as",
		`{"version":2}` + "\n":            "version 2",
		`{"version":"1"}` + "\n":          "cannot unmarshal",
		`{"version":1,"version":1}`:       "not written as",
		`{"version":1,"start":{}}` + "\n": "not written as",
		`{"version":1,"start":{"device":"GPU-1","command":"rm"}}` + "\n": "unknown field",
		start("", "/run/x"):                                 "is no id",
		start("GPU-", "/run/x"):                             "is no id",
		start("../GPU-1", "/run/x"):                         "is no id",
		start("GPU-1/..", "/run/x"):                         "is no id",
		start("GPU-1,GPU-2", "/run/x"):                      "is no id",
		start("GPU-1\n", "/run/x"):                          "is no id",
		start("MIG-1", "/run/x"):                            "is no id",
		start("GPU-"+strings.Repeat("1", 81), "/run/x"):     "is no id",
		start("GPU-1", "run/x"):                             "not absolute",
		start("GPU-1", ""):                                  "not absolute",
		start("GPU-1", "/run/../x"):                         "has dots",
		start("GPU-1", "/"+strings.Repeat("x", maxRequest)): "more than",
	} {
		if _, err := ReadRequest([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100q: %v, want %q", text, err, want)
		}
	}
}

func TestAnAnswerIsARefusalOrAStateAndNotBoth(t *testing.T) {
	for text, want := range map[string]string{
		`{"version":1}`:                          "neither",
		`{"version":1,"refused":"a","state":{}}`: "neither",
		`{"version":1,"state":{"more":1}}`:       "unknown field",
		`{"version":1,"refused":"a"}x`:           "invalid character",
		`{"version":3,"anything":[]}`:            "version 3",
	} {
		if _, err := ReadAnswer([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	var other *VersionError
	if _, err := ReadAnswer([]byte(`{"version":3}`)); !errors.As(err, &other) || other.Theirs != 3 {
		t.Errorf("another version is %v", err)
	}
}

func FuzzReadRequest(f *testing.F) {
	for _, r := range requests() {
		f.Add(r.Encode())
	}
	f.Add([]byte(`{"version":1,"start":{"device":"GPU-1","directory":"/a","multiUser":false,"partitioned":null}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ReadRequest(text)
		if err != nil {
			return
		}
		if !bytes.Equal(r.Encode(), text) {
			t.Errorf("%q is taken, and written as %q", text, r.Encode())
		}
		if d := r.Start; d != nil && (strings.ContainsAny(string(d.Device), "/.,\n ") || d.Directory[0] != '/') {
			t.Errorf("taken: %+v", d)
		}
	})
}

func FuzzReadAnswer(f *testing.F) {
	for _, a := range answers() {
		f.Add(a.Encode())
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := ReadAnswer(text)
		if err != nil {
			return
		}
		if again, err := ReadAnswer(a.Encode()); err != nil || !reflect.DeepEqual(a, again) {
			t.Errorf("%q is read as %+v, and that as %+v, %v", text, a, again, err)
		}
	})
}
