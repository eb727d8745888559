// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestCordonsAreReadBackAsTheyWereWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	moment := func() string {
		if r.IntN(3) == 0 {
			return ""
		}
		return time.Unix(r.Int64N(8e9), 0).UTC().Format(time.RFC3339)
	}
	for range 300 {
		want := sharing.Cordons{}
		for range r.IntN(5) {
			want[sharing.DeviceID("GPU-"+strconv.Itoa(r.IntN(9)))] = sharing.Cordon{
				Drains: r.IntN(2) == 0, Reason: []string{"", "fan", "Lüfter \\ \"1\"; {\u2028"}[r.IntN(3)], By: []string{"", "carol", "system:serviceaccount:a:b"}[r.IntN(3)],
				Since: moment(), Until: moment(),
			}
		}
		text, err := wire.EncodeCordons(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := wire.ReadCordons(map[string]string{wire.NodeCordon: text}); err != nil || !maps.Equal(got, want) {
			t.Fatalf("%s\nread as %+v, %v\nwant    %+v", text, got, err, want)
		}
	}
	if got, err := wire.ReadCordons(nil); err != nil || len(got) > 0 {
		t.Errorf("a node without the annotation has cordons %v, %v", got, err)
	}
}

func TestACordonIsWrittenSoThatPeopleCanReadIt(t *testing.T) {
	text, err := wire.EncodeCordons(sharing.Cordons{
		"GPU-1": {Drains: true, Reason: "fan", By: "carol", Since: "1970-01-01T00:00:00Z", Until: "1970-01-01T01:00:00Z"}, "GPU-0": {},
	})
	want := `{"version":1,"devices":{"GPU-0":{"effect":"NoSchedule"},` +
		`"GPU-1":{"effect":"NoExecute","reason":"fan","by":"carol","since":"1970-01-01T00:00:00Z","until":"1970-01-01T01:00:00Z"}}}`
	if err != nil || text != want {
		t.Errorf("%s, %v\nwant %s", text, err, want)
	}
}

func TestACordonThatPeopleWriteNeedsNoMoreThanTheDevice(t *testing.T) {
	got, err := wire.DecodeCordons(`{"version":1,"devices":{"GPU-0":{},"GPU-1":{"until":"2026-05-01T12:00:00Z"}}}`)
	want := sharing.Cordons{"GPU-0": {}, "GPU-1": {Until: "2026-05-01T12:00:00Z"}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAllMistakesOfCordonsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"no JSON":         {"cordoned", []string{"cordons: byte"}},
		"nothing":         {"", []string{"cordons: byte 0"}},
		"no version":      {`{"devices":{}}`, []string{"cordons: version: is missing"}},
		"a later version": {`{"version":2,"devices":{"GPU-0":{"effect":"Later"}}}`, []string{"cordons: version: 2 is not known"}},
		"a device twice":  {`{"version":1,"devices":{"GPU-0":{},"GPU-0":{}}}`, []string{"GPU-0"}},
		"a list":          {`{"version":1,"devices":["GPU-0"]}`, []string{"devices"}},
		"several": {`{"version":1,"devices":{"GPU 0":{},"GPU-1":{"effect":"noschedule","reason":"a\nb","by":"` + strings.Repeat("x", 254) + `","since":"yesterday","until":"12:00"}}}`, []string{
			`cordons: devices["GPU 0"]: is not the UUID of a device`,
			`devices["GPU-1"].effect: "noschedule" is not known: want NoSchedule or NoExecute`,
			`devices["GPU-1"].reason: is not one line of at most 253 bytes`, `devices["GPU-1"].by: is not one line`,
			`devices["GPU-1"].since: "yesterday" is no time such as`, `devices["GPU-1"].until: "12:00" is no time such as`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := wire.DecodeCordons(c.text)
			if err == nil || got != nil {
				t.Fatalf("read as %+v, %v", got, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
			if lines := strings.Count(err.Error(), "\n") + 1; lines != len(c.want) {
				t.Errorf("%d mistakes, want %d: %v", lines, len(c.want), err)
			}
		})
	}
	for name, c := range map[string]sharing.Cordons{"no device": {"": {}}, "no time": {"GPU-0": {Until: "never"}}, "no line": {"GPU-0": {By: "\x00"}}} {
		if _, err := wire.EncodeCordons(c); err == nil {
			t.Errorf("%s: what cannot be read was written", name)
		}
	}
}

// Times are compared as texts, so no other form of the same time may pass.
func TestTimesOfCordonsAreInTheirOrderAsTexts(t *testing.T) {
	for text, want := range map[string]bool{
		"2026-01-31T15:04:05Z": true, "0000-00-00T00:00:00Z": true, "2026-01-31T15:04:05+00:00": false, "2026-01-31T15:04:05.5Z": false, "2026-01-31T15:04Z": false,
		"2026-01-31 15:04:05Z": false, "2026-01-31T15:04:05z": false, "2026-13-31T15:04:05Z": false, "2026-01-32T15:04:05Z": false, "2026-01-31T24:04:05Z": false,
		"2026-01-31T15:60:05Z": false, "2026-01-31T15:04:61Z": false, "12026-01-1T15:04:05Z": false, "2026-01-31T15:04:0٥Z": false,
	} {
		if _, err := wire.DecodeCordons(`{"version":1,"devices":{"GPU-0":{"until":"` + text + `"}}}`); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzCordons(f *testing.F) {
	f.Add(`{"version":1,"devices":{"GPU-1":{"effect":"NoExecute","reason":"fan","by":"carol","since":"2026-01-01T00:00:00Z"}}}`)
	f.Add(`{"version":1,"devices":{"GPU-1":{"until":"9999-12-31T23:59:59Z"}}}`)
	f.Add(`{"version":1,"devices":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := wire.DecodeCordons(text)
		if err != nil {
			return
		}
		again, err := wire.EncodeCordons(got)
		if err != nil {
			t.Fatalf("%q is read as %+v and cannot be written: %v", text, got, err)
		}
		back, err := wire.DecodeCordons(again)
		if err != nil || len(back) != len(got) {
			t.Fatalf("%q is read as %+v, %v; want %+v", again, back, err, got)
		}
	})
}
