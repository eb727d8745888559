// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/request"
)

// Settings is what the device configuration says to the scheduler. A value is never
// changed; an edit of the configuration makes a new one, and every node is read anew.
type Settings struct {
	// Names are the resource names that pods ask with.
	Names podspec.Names
	// Factor is how many MiB one unit of the memory resource is.
	Factor int64
	// Defaults are what a container gets where it does not say.
	Defaults request.Defaults
	// Unread says that nobody knows what the configuration says. Any extended resource
	// may then be one of ours under another name.
	Unread bool
}

// DefaultSettings are in force where there is no configuration.
func DefaultSettings() Settings {
	return Settings{Names: podspec.DefaultNames(), Factor: 1}
}
