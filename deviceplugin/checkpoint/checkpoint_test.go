// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/sharing"
)

func sample(id string, owner sharing.Owner) Record {
	return Record{
		ID: id, Owner: owner, Namespace: "default", Pod: "p", Container: "main", Slots: []string{"GPU-a-0", "GPU-b-3"},
		Mode:    sharing.HAMiCore,
		Devices: []DeviceAndShare{{Device: "GPU-a", Memory: sharing.GiB, Cores: 30}, {Device: "GPU-b", Whole: true, Memory: 80 * sharing.GiB}},
	}
}

func encode(t *testing.T, records ...Record) []byte {
	t.Helper()
	text, err := Encode(records)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestEncodedRecordsAreReadBackWhole(t *testing.T) {
	for name, records := range map[string][]Record{
		"none":    {},
		"several": {sample("a", "uid-1"), sample("b", "uid-1"), sample("c", "uid-2")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decode(encode(t, records...))
			if err != nil || !reflect.DeepEqual(got, records) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestRecordsOfPartitionsNameThem(t *testing.T) {
	r := sample("a", "uid-1")
	r.Mode = sharing.MIG
	r.Devices[0].Partition = Partition{Profile: "3g.40gb", Start: 4, Size: 4, UUID: "MIG-1"}
	text := encode(t, r)
	if want := `"partition":{"profile":"3g.40gb","start":4,"size":4,"uuid":"MIG-1"}`; !bytes.Contains(text, []byte(want)) || bytes.Count(text, []byte("partition")) != 1 {
		t.Errorf("the text is %s", text)
	}
	got, err := Decode(text)
	if err != nil || !reflect.DeepEqual(got, []Record{r}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Texts of other versions of the program: they have no partitions, or further
// fields that are for people.
func TestCheckpointsOfOtherVersionsOfTheProgramAreRead(t *testing.T) {
	cases := map[string]struct {
		records string
		want    Partition
	}{
		"before there were partitions": {`[{"id":"a","owner":"u","namespace":"n","pod":"p","container":"c","slots":["s"],"mode":"mig","devices":[{"device":"GPU-a","memory":1,"cores":2}]}]`,
			Partition{}},
		"of a program that knows more": {`[{"id":"a","owner":"u","namespace":"n","pod":"p","container":"c","slots":["s"],"mode":"mig","new":1,"devices":[{"device":"GPU-a","memory":1,"cores":2,"partition":{"profile":"1g","start":1,"size":1,"new":2}}]}]`,
			Partition{Profile: "1g", Start: 1, Size: 1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			records, err := Decode([]byte(seal(tc.records)))
			if err != nil || len(records) != 1 || records[0].Devices[0].Partition != tc.want {
				t.Errorf("got %+v, %v", records, err)
			}
		})
	}
}

func TestTheOrderOfRecordsDoesNotChangeTheText(t *testing.T) {
	a, b := sample("a", "uid-1"), sample("b", "uid-2")
	if x, y := encode(t, a, b), encode(t, b, a); !bytes.Equal(x, y) {
		t.Errorf("%s\n%s", x, y)
	}
}

func TestADamagedTextIsNeverHalfRead(t *testing.T) {
	good := string(encode(t, sample("a", "uid-1"), sample("b", "uid-2")))
	cases := map[string]struct{ text, want string }{
		"empty":                        {"", "decode checkpoint"},
		"cut off":                      {good[:len(good)/2], "decode checkpoint"},
		"a changed amount":             {strings.Replace(good, "1073741824", "9973741824", 1), "checksum"},
		"another version":              {strings.Replace(good, `"version":1`, `"version":2`, 1), "version 2"},
		"no version":                   {`{"records":[]}`, "version 0"},
		"an id that is there twice":    {string(encode(t, sample("a", "x"), sample("a", "x"))), "twice"},
		"a record of nobody":           {string(encode(t, sample("a", ""))), "no id, owner"},
		"records that are not a list":  {seal(`{"a":1}`), "decode checkpoint"},
		"a record that is not a value": {seal(`[1]`), "decode checkpoint"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			records, err := Decode([]byte(tc.text))
			if err == nil || records != nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, %v; want an error with %q", records, err, tc.want)
			}
		})
	}
}

// seal is a text with a right checksum over any records.
func seal(records string) string {
	return `{"version":1,"checksum":"` + checksum([]byte(records)) + `","records":` + records + `}`
}

func FuzzDecode(f *testing.F) {
	good, _ := Encode([]Record{sample("a", "uid-1")})
	f.Add(good)
	f.Add([]byte(seal(`[]`)))
	f.Add([]byte(seal(`null`)))
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		records, err := Decode(text)
		if err != nil {
			if records != nil {
				t.Fatal("records beside an error")
			}
			return
		}
		again, err := Encode(records)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if second, err := Decode(again); err != nil || len(second) != len(records) {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}

func open(t *testing.T, files host.Files, path string) *Store {
	t.Helper()
	s, broken, err := Open(files, path)
	if err != nil || broken != nil {
		t.Fatal(err, broken)
	}
	return s
}

func TestTheStoreSurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "checkpoint.json")
	s := open(t, host.OS{}, path)
	for _, r := range []Record{sample("a", "uid-1"), sample("b", "uid-1"), sample("c", "uid-2")} {
		if err := s.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Forget("uid-2"); err != nil {
		t.Fatal(err)
	}
	again := open(t, host.OS{}, path)
	if got := again.All(); !reflect.DeepEqual(got, []Record{sample("a", "uid-1"), sample("b", "uid-1")}) {
		t.Errorf("after the restart: %+v", got)
	}
	if got := again.Of("uid-2"); len(got) != 0 {
		t.Errorf("a forgotten owner has %+v", got)
	}
}

func TestAFailedWriteChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	s := open(t, &modestest.Crashing{Under: host.OS{}, At: 2}, path)
	if err := s.Put(sample("a", "uid-1")); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(sample("b", "uid-2")); !errors.Is(err, modestest.ErrCrash) {
		t.Fatalf("the write answered %v", err)
	}
	if got := s.All(); len(got) != 1 || got[0].ID != "a" {
		t.Errorf("memory holds %+v", got)
	}
	if got := open(t, host.OS{}, path).All(); len(got) != 1 || got[0].ID != "a" {
		t.Errorf("the disk holds %+v", got)
	}
}

func TestPuttingTheSameRecordAgainWritesNothing(t *testing.T) {
	counting := &modestest.Crashing{Under: host.OS{}, At: -1}
	s := open(t, counting, filepath.Join(t.TempDir(), "checkpoint.json"))
	for range 3 {
		if err := s.Put(sample("a", "uid-1")); err != nil {
			t.Fatal(err)
		}
	}
	if counting.Effects() != 2 {
		t.Errorf("%d effects, want the directory and one write", counting.Effects())
	}
}

func TestWhatAKilledWriterLeftIsCleared(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".checkpoint.json.tmp-1", ".other.tmp-1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open(t, host.OS{}, filepath.Join(dir, "checkpoint.json"))
	if names, _ := os.ReadDir(dir); len(names) != 1 || names[0].Name() != ".other.tmp-1" {
		t.Errorf("left are %v", names)
	}
}

func TestBrokenFilesAreKeptAsideUnderFreshNumbers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "checkpoint.json")
	for n, text := range []string{"first", "second"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, broken, err := Open(host.OS{}, path)
		if err != nil || broken == nil || len(s.All()) != 0 {
			t.Fatalf("opened with %v, %v, %v", s.All(), broken, err)
		}
		kept, err := os.ReadFile(filepath.Join(dir, "checkpoint.json.broken-"+string(rune('1'+n))))
		if err != nil || string(kept) != text {
			t.Errorf("kept aside %q, %v", kept, err)
		}
		if !strings.Contains(broken.Error(), "kept as") {
			t.Errorf("the message %q does not say where it is", broken)
		}
	}
}
