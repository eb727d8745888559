// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/request"
)

// Settings is what the device configuration says to the scheduler. A value is
// never changed; an edit of the configuration makes a new one.
type Settings struct {
	// Names are the resource names pods ask with.
	Names podspec.Names
	// Factor is the MiB that one unit of the memory resource counts.
	Factor int64
	// Defaults are what a container gets where it does not say.
	Defaults request.Defaults
	// unread says that nobody knows what the configuration says. Then any extended
	// resource may be one of ours under another name.
	unread bool
}

// DefaultSettings are in force where there is no configuration.
func DefaultSettings() Settings {
	return Settings{Names: podspec.DefaultNames(), Factor: 1}
}
