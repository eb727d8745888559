// SPDX-License-Identifier: Apache-2.0

// Package factory lists the node half of every backend. It is the only package that
// imports all of them. A mode without a line here is refused on the node; no mode falls back
// to another.
package factory

import (
	"path/filepath"
	"time"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/hamicore"
	"deviceshare/deviceplugin/modes/mig"
	"deviceshare/deviceplugin/modes/mps"
	"deviceshare/deviceplugin/modes/timeslicing"
	"deviceshare/sharing"
)

// Config is what the node halves need from their host.
type Config struct {
	// Files is the host's file system, and Space bounds what containers can put there.
	Files host.Files
	Space host.Space
	// StateDir is where backends keep their files, each below its mode's name.
	// The container runtime must see it under the same path.
	StateDir string
	// LibraryDir holds libvgpu.so.
	LibraryDir string
	// MIG is the hardware that can be partitioned; nil serves no partitions.
	MIG driver.Partitions
	// Given reports whether somebody gave a device its mode; nil is always.
	Given func(id sharing.DeviceID) bool
	// Note is told about changes of the hardware, for the log; nil is nobody.
	Note func(id sharing.DeviceID, what string)
	// MPS is what mode mps needs beside the files; without a Control the mode is not served.
	MPS mps.Config
	// TimeSlice sets how long a process has a device in mode time-slicing; nil
	// leaves it to the driver.
	TimeSlice     timeslicing.Tool
	TimeSliceStep timeslicing.Slice
}

func timeSlicing(cfg *Config) modes.Preparer {
	if cfg.TimeSlice == nil {
		return timeslicing.New()
	}
	return &timeslicing.Setting{
		Files: cfg.Files, Root: filepath.Join(cfg.StateDir, string(sharing.TimeSlicing)), Tool: cfg.TimeSlice, Slice: cfg.TimeSliceStep,
	}
}

// patience is how long a container waits for a partition whose last pod is just
// being taken back. With it and the waits for a driver that says "in use", making
// an instance stays below the 30 s the kubelet gives.
const patience = 8 * time.Second

// New returns one preparer per mode that this node can serve.
func New(cfg Config) []modes.Preparer {
	preparers := []modes.Preparer{
		hamicore.New(cfg.Files, cfg.Space, filepath.Join(cfg.StateDir, string(sharing.HAMiCore)), filepath.Join(cfg.LibraryDir, "libvgpu.so")),
		timeSlicing(&cfg),
	}
	if cfg.MIG != nil {
		preparers = append(preparers, mig.New(mig.Config{
			Files: cfg.Files, Root: filepath.Join(cfg.StateDir, string(sharing.MIG)), Driver: cfg.MIG, Patience: patience,
			Given: cfg.Given, Note: cfg.Note,
		}))
	}
	if c := cfg.MPS; c.Control != nil {
		c.Files, c.Root, c.Library = cfg.Files, filepath.Join(cfg.StateDir, string(sharing.MPS)), filepath.Join(cfg.LibraryDir, "libvgpu.so")
		preparers = append(preparers, mps.New(c))
	}
	return preparers
}
