// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"deviceshare/deviceplugin/host"
)

// Directory is where the container runtime looks for specifications. Files are
// written beside their final name and renamed, because runtimes react to renames
// and removals and must never read half a file. It is safe for concurrent use.
type Directory struct {
	Files host.Files
	Path  string

	mu sync.Mutex // the driver's specification is there while any other is
}

// Write puts the specification of an allocation in place, and that of the driver, which the same
// container needs. It reports whether it changed anything.
func (d *Directory) Write(id string, driver, text []byte) (changed bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, file := range []struct {
		name string
		text []byte
	}{{driverFile, driver}, {File(id), text}} {
		wrote, err := host.WriteIfChanged(d.Files, filepath.Join(d.Path, file.name), file.text, 0o644, 0o755)
		if err != nil {
			return false, fmt.Errorf("write CDI specification: %w", err)
		}
		changed = changed || wrote
	}
	return changed, nil
}

// Remove removes the specification of an allocation and what a killed process left
// of one; a missing one is no mistake. With the last one goes that of the driver.
func (d *Directory) Remove(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	names, err := d.Files.List(d.Path)
	if err != nil {
		return fmt.Errorf("remove CDI specification: %w", err)
	}
	for _, name := range names {
		if got, ours := parseFileName(name); ours && got == id {
			if err := d.Files.Remove(filepath.Join(d.Path, name)); err != nil {
				return fmt.Errorf("remove CDI specification: %w", err)
			}
		}
	}
	if left, err := d.IDs(); err != nil || len(left) > 0 {
		return err
	}
	if err := d.Files.Remove(filepath.Join(d.Path, driverFile)); err != nil {
		return fmt.Errorf("remove the driver's CDI specification: %w", err)
	}
	return nil
}

// IDs lists the allocations that have a specification, or the beginning of one.
func (d *Directory) IDs() ([]string, error) {
	names, err := d.Files.List(d.Path)
	if err != nil {
		return nil, fmt.Errorf("list CDI specifications: %w", err)
	}
	var ids []string
	for _, name := range names {
		if id, ours := parseFileName(name); ours && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// parseFileName takes the allocation id out of the name of a file, finished or not.
func parseFileName(name string) (string, bool) {
	if id, ours := FileID(name); ours {
		return id, true
	}
	begin, _, cut := strings.Cut(name, ".json.tmp-")
	id, ours := FileID(strings.TrimPrefix(begin, ".") + ".json")
	return id, ours && cut && name != begin && strings.HasPrefix(name, host.Unfinished(File(id)))
}
