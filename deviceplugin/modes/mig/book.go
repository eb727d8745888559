// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"deviceshare/deviceplugin/host"
	"deviceshare/sharing"
)

// holdingStore is the holdings on disk. The caller holds the turn of the device it works
// on, see deviceLocks.
type holdingStore struct {
	files host.Files
	root  string
}

// holdingFileName is the file of a container's holding. A pod UID holds no underscore, so
// the name can be taken apart again.
func holdingFileName(o sharing.Owner, container string) string { return string(o) + "_" + container }

// ownerOf takes the owner out of a file's name, also of one that a killed process
// left unfinished.
func ownerOf(file string) (sharing.Owner, bool) {
	o, _, ok := strings.Cut(strings.TrimPrefix(file, "."), "_")
	return sharing.Owner(o), ok && o != ""
}

func (b *holdingStore) deviceDir(id sharing.DeviceID) string {
	return filepath.Join(b.root, string(id))
}

// enteredPath is the file that says that a device was brought into the mode here. Its name
// is that of no holding.
func (b *holdingStore) enteredPath(id sharing.DeviceID) string {
	return filepath.Join(b.deviceDir(id), ".entered")
}

// hasEntered reports whether a device was brought into the mode here.
func (b *holdingStore) hasEntered(id sharing.DeviceID) (bool, error) {
	_, err := b.files.Read(b.enteredPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (b *holdingStore) recordEntered(id sharing.DeviceID) error {
	if in, err := b.hasEntered(id); in || err != nil {
		return err
	}
	if err := b.files.MakeDir(b.deviceDir(id), 0o700); err != nil {
		return err
	}
	return b.files.Write(b.enteredPath(id), nil, 0o600)
}

func (b *holdingStore) recordLeft(id sharing.DeviceID) error {
	if in, err := b.hasEntered(id); !in || err != nil {
		return err
	}
	return b.files.Remove(b.enteredPath(id))
}

// writeHolding writes a holding unless it is written already.
func (b *holdingStore) writeHolding(h *holding) error {
	text, err := encodeHolding(h)
	if err != nil {
		return err
	}
	_, err = host.WriteIfChanged(b.files, filepath.Join(b.deviceDir(h.Device), holdingFileName(h.Owner, h.Container)), text, 0o600, 0o700)
	return err
}

// storedHolding is what is written for a container on a device; false if nothing is, or
// nothing that can be read.
func (b *holdingStore) storedHolding(h *holding) (holding, bool) {
	have, err := b.readHolding(h.Device, holdingFileName(h.Owner, h.Container))
	return have, err == nil
}

// listHoldings are the holdings of a device except that of one container. One that
// cannot be read may be of any place: it is an error.
func (b *holdingStore) listHoldings(id sharing.DeviceID, except string) ([]holding, error) {
	names, err := b.files.List(b.deviceDir(id))
	if err != nil {
		return nil, err
	}
	var found []holding
	for _, file := range names {
		if file == except || strings.HasPrefix(file, ".") {
			continue
		}
		h, err := b.readHolding(id, file)
		if err != nil {
			return nil, err
		}
		found = append(found, h)
	}
	return found, nil
}

func (b *holdingStore) readHolding(id sharing.DeviceID, file string) (holding, error) {
	path := filepath.Join(b.deviceDir(id), file)
	text, err := b.files.Read(path)
	if err != nil {
		return holding{}, err
	}
	h, err := decodeHolding(text)
	if err == nil && (h.Device != id || holdingFileName(h.Owner, h.Container) != file) {
		err = fmt.Errorf("it is of container %s of pod %s on device %s", h.Container, h.Owner, h.Device)
	}
	if err != nil {
		owner, _ := ownerOf(file)
		return holding{}, fmt.Errorf("what pod %s holds of device %s cannot be known until that pod ends or its container restarts: %s: %w", owner, id, path, err)
	}
	return h, nil
}

// devicesHeldBy lists the devices of which an owner may hold something; "" is anyone.
func (b *holdingStore) devicesHeldBy(o sharing.Owner) ([]sharing.DeviceID, error) {
	dirs, err := b.files.List(b.root)
	if err != nil {
		return nil, err
	}
	var ids []sharing.DeviceID
	for _, dir := range dirs {
		files, err := b.files.List(filepath.Join(b.root, dir))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(files, func(f string) bool { x, ok := ownerOf(f); return ok && (o == "" || x == o) }) {
			ids = append(ids, sharing.DeviceID(dir))
		}
	}
	return ids, nil
}

func (b *holdingStore) removeHoldings(id sharing.DeviceID, o sharing.Owner) error {
	names, err := b.files.List(b.deviceDir(id))
	if err != nil {
		return err
	}
	var failed []error
	for _, file := range names {
		if x, ok := ownerOf(file); ok && x == o {
			failed = append(failed, b.files.Remove(filepath.Join(b.deviceDir(id), file)))
		}
	}
	return errors.Join(failed...)
}

func (b *holdingStore) listOwners() ([]sharing.Owner, error) {
	dirs, err := b.files.List(b.root)
	if err != nil {
		return nil, err
	}
	var owners []sharing.Owner
	for _, dir := range dirs {
		files, err := b.files.List(filepath.Join(b.root, dir))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if o, ok := ownerOf(f); ok && !slices.Contains(owners, o) {
				owners = append(owners, o)
			}
		}
	}
	return owners, nil
}
