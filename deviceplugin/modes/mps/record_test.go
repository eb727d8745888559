// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"reflect"
	"strings"
	"testing"
)

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	user := int64(1000)
	for _, want := range []claimRecord{
		{Version: version, Device: "GPU-a", Namespace: "ns", Pod: "p", Container: "c", Kind: "app", User: &user, Shm: 5, Partition: "GPU-a/1"},
		{Version: version, Device: "GPU-a", Namespace: "ns", Pod: "p", Container: "c", Kind: "init"},
	} {
		var got claimRecord
		if err := decodeRecord("claim", encodeRecord(want), &got, &got.Version); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("read %+v (%v), want %+v", got, err, want)
		}
	}
	want := deviceRecord{Version: version, Before: 2, MemoryMiB: 81920, Percentage: 100, Wanted: true}
	var got deviceRecord
	if err := decodeRecord("device", encodeRecord(want), &got, &got.Version); err != nil || got != want {
		t.Errorf("read %+v (%v), want %+v", got, err, want)
	}
}

func TestARecordThatCannotBeReadIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"":                "/x/claim",
		"{":               "/x/claim",
		`{"version":2}`:   "version 2, want 1",
		`{"version":"1"}`: "/x/claim",
	} {
		var c claimRecord
		if err := decodeRecord("/x/claim", []byte(text), &c, &c.Version); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is answered with %v", text, err)
		}
	}
}

// FuzzRecords: whatever is in a file is read or refused, and what was read is
// written and read again the same.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"version":1,"device":"GPU-a","user":1000,"kind":"app"}`))
	f.Add([]byte(`{"version":1,"before":3,"memoryMiB":1,"percentage":100,"wanted":true}`))
	f.Add([]byte(`{"version":1,"user":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c, again claimRecord
		if decodeRecord("f", text, &c, &c.Version) == nil {
			if err := decodeRecord("f", encodeRecord(c), &again, &again.Version); err != nil || string(encodeRecord(again)) != string(encodeRecord(c)) {
				t.Errorf("%+v became %+v (%v)", c, again, err)
			}
		}
		var d, second deviceRecord
		if decodeRecord("f", text, &d, &d.Version) == nil {
			if err := decodeRecord("f", encodeRecord(d), &second, &second.Version); err != nil || second != d {
				t.Errorf("%+v became %+v (%v)", d, second, err)
			}
		}
	})
}
