// SPDX-License-Identifier: Apache-2.0

// Package nodefactory lists the node halves of the backends: the one place that
// knows them all. A mode without a line here is refused on the node; there is no
// fallback to another mode.
package nodefactory

import (
	"path/filepath"

	"deviceshare/sharing"
	"deviceshare/sharing/hamicore/hamicorenode"
	"deviceshare/sharing/nodeapi"
	"deviceshare/sharing/nodeapi/hostnode"
	"deviceshare/sharing/timeslicing/timeslicingnode"
)

// Config is what the node halves need from their host.
type Config struct {
	// Files is the host's file system.
	Files hostnode.Files
	// StateDir is where backends keep their files, each below its mode's name.
	// The container runtime must see it under the same path.
	StateDir string
	// LibraryDir holds libvgpu.so.
	LibraryDir string
}

// New returns one preparer per mode that this node can serve.
func New(cfg Config) []nodeapi.Preparer {
	return []nodeapi.Preparer{
		hamicorenode.New(cfg.Files, filepath.Join(cfg.StateDir, string(sharing.HAMiCore)), filepath.Join(cfg.LibraryDir, "libvgpu.so")),
		timeslicingnode.New(),
	}
}
