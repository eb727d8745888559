// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"deviceshare/deviceplugin/host"
	"deviceshare/sharing"
)

// Store is the records in memory and on disk. A method that changes them returns
// only after the change is durable, and changes nothing when that fails. It is
// safe for concurrent use.
type Store struct {
	files host.Files
	path  string

	mu      sync.Mutex
	records map[string]Record
}

// Open reads the checkpoint at path. A missing file is an empty one. A file that
// cannot be understood is kept aside as <path>.broken-<n>, and broken says why:
// the caller then rebuilds the records. err means the disk does not work.
func Open(files host.Files, path string) (s *Store, broken, err error) {
	s = &Store{files: files, path: path, records: map[string]Record{}}
	if err := files.MakeDir(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, fmt.Errorf("open checkpoint: %w", err)
	}
	if err := s.removeUnfinished(); err != nil {
		return nil, nil, fmt.Errorf("open checkpoint: %w", err)
	}
	text, err := files.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open checkpoint: %w", err)
	}
	records, broken := Decode(text)
	if broken == nil {
		for _, r := range records {
			s.records[r.ID] = r
		}
		return s, nil, nil
	}
	aside, err := s.setAside(text)
	if err != nil {
		return nil, nil, fmt.Errorf("keep the broken checkpoint: %w", err)
	}
	return s, fmt.Errorf("%s is not readable and was kept as %s: %w", path, aside, broken), nil
}

// removeUnfinished removes what processes left that were killed while they wrote.
func (s *Store) removeUnfinished() error {
	names, err := s.files.List(filepath.Dir(s.path))
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, host.Unfinished(filepath.Base(s.path))) {
			continue
		}
		if err := s.files.Remove(filepath.Join(filepath.Dir(s.path), name)); err != nil {
			return err
		}
	}
	return nil
}

// setAside keeps a broken text under the first free number.
func (s *Store) setAside(text []byte) (string, error) {
	names, err := s.files.List(filepath.Dir(s.path))
	if err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s.broken-%d", filepath.Base(s.path), n)
		if slices.Contains(names, name) {
			continue
		}
		aside := filepath.Join(filepath.Dir(s.path), name)
		if err := s.files.Write(aside, text, 0o600); err != nil {
			return "", err
		}
		return aside, s.files.Remove(s.path)
	}
}

// Put adds a record or replaces the one with its id.
func (s *Store) Put(r Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.records[r.ID]; ok && recordsEqual(old, r) {
		return nil
	}
	next := maps.Clone(s.records)
	next[r.ID] = r
	return s.saveRecords(next)
}

// Forget removes every record of an owner. An unknown owner is no mistake.
func (s *Store) Forget(o sharing.Owner) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(s.records)
	maps.DeleteFunc(next, func(_ string, r Record) bool { return r.Owner == o })
	if len(next) == len(s.records) {
		return nil
	}
	return s.saveRecords(next)
}

// saveRecords writes next and then takes it over. The caller holds the lock.
func (s *Store) saveRecords(next map[string]Record) error {
	text, err := Encode(slices.Collect(maps.Values(next)))
	if err != nil {
		return err
	}
	if err := s.files.Write(s.path, text, 0o600); err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	s.records = next
	return nil
}

// Of returns the records of an owner, by id.
func (s *Store) Of(o sharing.Owner) []Record {
	return slices.DeleteFunc(s.All(), func(r Record) bool { return r.Owner != o })
}

// All returns every record, by id.
func (s *Store) All() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.records), func(a, b Record) int { return strings.Compare(a.ID, b.ID) })
}

// ByOwner returns all records by their owners.
func (s *Store) ByOwner() map[sharing.Owner][]Record {
	out := map[sharing.Owner][]Record{}
	for _, r := range s.All() {
		out[r.Owner] = append(out[r.Owner], r)
	}
	return out
}

func recordsEqual(a, b Record) bool {
	return a.ID == b.ID && a.Owner == b.Owner && a.Namespace == b.Namespace && a.Pod == b.Pod &&
		a.Container == b.Container && a.Mode == b.Mode && slices.Equal(a.Slots, b.Slots) && slices.Equal(a.Devices, b.Devices)
}
