// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"deviceshare/config/live"
	"deviceshare/deviceplugin/host"
)

// Configuration is the last good text of each ConfigMap on this node's disk, so that
// a restart while one is wrong or out of reach changes nothing. It implements
// live.Store.
type Configuration struct {
	Files     host.Files
	Directory string
	// Trouble is told what cannot be written or read. It may be nil.
	Trouble func(error)
}

// keptFile is one such text on disk.
type keptFile struct {
	// Format is 1. A reader takes no other.
	Format int `json:"format"`
	// Namespace, Name and Version are those of the object; empty when there was none
	// and the defaults were meant.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Version   string `json:"version,omitempty"`
	Text      string `json:"text,omitempty"`
}

func (c Configuration) pathOf(name string) string { return filepath.Join(c.Directory, name+".json") }

// Keep writes what is good of a ConfigMap, unless it is written.
func (c Configuration) Keep(name string, last live.Kept) {
	text, err := json.Marshal(keptFile{
		Format: 1, Namespace: last.Source.Namespace, Name: last.Source.Name, Version: last.Source.Version, Text: last.Text,
	})
	if err == nil {
		_, err = host.WriteIfChanged(c.Files, c.pathOf(name), text, 0o600, 0o700)
	}
	if err != nil {
		c.reportTrouble(fmt.Errorf("keep ConfigMap %s for the next start: %w", name, err))
	}
}

// Recall reads what was good of a ConfigMap; false if nothing is known.
func (c Configuration) Recall(name string) (live.Kept, bool) {
	text, err := c.Files.Read(c.pathOf(name))
	if errors.Is(err, fs.ErrNotExist) {
		return live.Kept{}, false
	}
	var f keptFile
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err == nil && f.Format != 1 {
		err = fmt.Errorf("format %d, this program reads format 1", f.Format)
	}
	if err != nil {
		c.reportTrouble(fmt.Errorf("read what ConfigMap %s said before this start, %s: %w", name, c.pathOf(name), err))
		return live.Kept{}, false
	}
	return live.Kept{Source: live.Source{Namespace: f.Namespace, Name: f.Name, Version: f.Version}, Text: f.Text}, true
}

func (c Configuration) reportTrouble(err error) {
	if c.Trouble != nil {
		c.Trouble(err)
	}
}
