// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"deviceshare/config/live"
	"deviceshare/sharing/nodeapi/hostnode"
)

// kept is the last good text of each ConfigMap on this node's disk, so that a restart
// while one is wrong or out of reach changes nothing.
type kept struct {
	files     hostnode.Files
	directory string
	// trouble is told what cannot be written or read.
	trouble func(error)
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

func (k kept) path(name string) string { return filepath.Join(k.directory, name+".json") }

// keep writes what is good of a ConfigMap, unless it is written.
func (k kept) keep(name string, last live.Kept) {
	text, err := json.Marshal(keptFile{
		Format: 1, Namespace: last.Source.Namespace, Name: last.Source.Name, Version: last.Source.Version, Text: last.Text,
	})
	if have, unread := k.files.Read(k.path(name)); unread == nil && bytes.Equal(have, text) {
		return
	}
	if err == nil {
		err = k.files.MakeDir(k.directory, 0o700)
	}
	if err == nil {
		err = k.files.Write(k.path(name), text, 0o600)
	}
	if err != nil {
		k.trouble(fmt.Errorf("keep ConfigMap %s for the next start: %w", name, err))
	}
}

// recall reads what was good of a ConfigMap; false if nothing is known.
func (k kept) recall(name string) (live.Kept, bool) {
	text, err := k.files.Read(k.path(name))
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
		k.trouble(fmt.Errorf("read what ConfigMap %s said before this start, %s: %w", name, k.path(name), err))
		return live.Kept{}, false
	}
	return live.Kept{Source: live.Source{Namespace: f.Namespace, Name: f.Name, Version: f.Version}, Text: f.Text}, true
}
