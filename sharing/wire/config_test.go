// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"os"
	"strings"
	"testing"

	"deviceshare/sharing/wire"
)

func TestConfigVersionsAreReadBackAsTheyWereWritten(t *testing.T) {
	for name, v := range map[string]wire.ConfigVersions{
		"all":  {Device: "5d41402abc4b2a76", Node: "7d793037a0760186", Geometry: "b9719d911017c592"},
		"some": {Device: "5d41402abc4b2a76"},
		"none": {},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := wire.EncodeConfig(v)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := wire.DecodeConfig(text); err != nil || back != v {
				t.Errorf("%s: %+v, %v", text, back, err)
			}
		})
	}
	text, _ := wire.EncodeConfig(wire.ConfigVersions{Device: "a", Node: "b", Geometry: "c"})
	if want := `{"version":1,"device":"a","node":"b","geometry":"c"}`; text != want {
		t.Errorf("written %s, want %s", text, want)
	}
}

func TestConfigVersionsThatAreWrongAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":           {"a", "byte"},
		"no version":        {`{"device":"a"}`, "version"},
		"another version":   {`{"version":2,"device":"a"}`, "version"},
		"a hash of numbers": {`{"version":1,"node":5}`, "node"},
		"two lines":         {`{"version":1,"geometry":"a\nb"}`, "geometry"},
		"a very long one":   {`{"version":1,"device":"` + strings.Repeat("a", 300) + `"}`, "device"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := wire.DecodeConfig(c.text)
			if err == nil || !strings.Contains(err.Error(), c.want) || v != (wire.ConfigVersions{}) {
				t.Errorf("%+v, %v; want an error about %s", v, err, c.want)
			}
		})
	}
	if _, err := wire.EncodeConfig(wire.ConfigVersions{Node: "a\nb"}); err == nil {
		t.Error("what cannot be read was written")
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(`{"version":1,"device":"5d41402abc4b2a76","node":"7d793037a0760186","geometry":"b9719d911017c592"}`)
	f.Add(`{"version":1}`)
	f.Add(`{"version":1,"more":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		v, err := wire.DecodeConfig(text)
		if err != nil {
			explained(t, err)
			return
		}
		again, err := wire.EncodeConfig(v)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if back, err := wire.DecodeConfig(again); err != nil || back != v {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, back, v)
		}
	})
}

func TestTheConfigAnnotationIsDocumented(t *testing.T) {
	docs, err := os.ReadFile("../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"`" + wire.NodeConfig + "`", "`device`", "`node`", "`geometry`"} {
		if !strings.Contains(string(docs), word) {
			t.Errorf("docs/wire.md does not mention %s", word)
		}
	}
}
