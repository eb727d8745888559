// SPDX-License-Identifier: Apache-2.0

package timeslicing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Setting is a preparer that sets the time slice of every device in the mode. It
// implements modes.Switcher. It records each device that it sets in a file below Root,
// before it sets the slice.
type Setting struct {
	Preparer
	Files host.Files
	Root  string
	Tool  Tool
	Slice Slice
}

func (s *Setting) recordPath(id sharing.DeviceID) string { return filepath.Join(s.Root, string(id)) }

// Entered implements modes.Switcher.
func (s *Setting) Entered(_ context.Context, d sharing.Device) (bool, error) {
	_, err := s.Files.Read(s.recordPath(d.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Enter implements modes.Switcher. It sets the slice each time, because the driver
// loses it in a reboot.
func (s *Setting) Enter(ctx context.Context, d sharing.Device) error {
	if err := s.Files.MakeDir(s.Root, 0o700); err != nil {
		return fmt.Errorf("device %s enters mode time-slicing: %w", d.ID, err)
	}
	if err := s.Files.Write(s.recordPath(d.ID), []byte("time-slice 1 "+s.Slice.String()+"\n"), 0o600); err != nil {
		return fmt.Errorf("device %s enters mode time-slicing: %w", d.ID, err)
	}
	return s.setSlice(ctx, &d, s.Slice)
}

// Leave implements modes.Switcher.
func (s *Setting) Leave(ctx context.Context, d sharing.Device) error {
	if there, err := s.Entered(ctx, d); err != nil || !there {
		return err
	}
	if err := s.setSlice(ctx, &d, 0); err != nil {
		return err
	}
	if err := s.Files.Remove(s.recordPath(d.ID)); err != nil {
		return fmt.Errorf("device %s leaves mode time-slicing: %w", d.ID, err)
	}
	return nil
}

// setSlice sets the slice, and returns a *modes.Manual if the driver refuses.
func (s *Setting) setSlice(ctx context.Context, d *sharing.Device, slice Slice) error {
	err := s.Tool.SetSlice(ctx, d.ID, slice)
	if errors.Is(err, ErrRefused) {
		do := "nvidia-smi compute-policy -i " + string(d.ID) +
			" --set-timeslice=" + strconv.Itoa(int(slice)) + " as root on the node, or start the device plugin without --time-slice"
		if d.Virtual {
			do = "it is a vGPU, whose slices are its host's: start the device plugin without --time-slice"
		}
		return &modes.Manual{Device: d.ID, Why: err.Error(), Do: do}
	}
	if err != nil {
		return fmt.Errorf("set the time slice of device %s to %v: %w", d.ID, slice, err)
	}
	return nil
}
