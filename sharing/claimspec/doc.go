// SPDX-License-Identifier: Apache-2.0

// Package claimspec describes a ResourceClaim as a neutral value and reads what it asks for: the
// twin of packages podspec and request for claims. Scheduler, webhook, device plugin and views read
// claims through it. Package coreclaim reads Kubernetes' own type.
//
// A claim asks in two ways, which mean the same: by ShareParameters in an opaque configuration of
// our driver, and by the capacities memory and cores of its request. The configuration of its
// DeviceClass comes first, what the claim itself says takes precedence, field by field.
//
// What is read here is people's input: every mistake is reported at once, with its path.
//
// Functions here change none of their arguments and are safe for concurrent use.
package claimspec

import (
	"slices"

	"deviceshare/sharing/wire"
)

// Claim is the part of a ResourceClaim that the rules look at.
type Claim struct {
	UID, Namespace, Name string
	Requests             []Request
	// Configs are the opaque configurations of the claim's spec.
	Configs []Config
	// Constraints is how many constraints the claim has.
	Constraints int
}

// Request is one request of a claim.
type Request struct {
	Name string
	// Class is its DeviceClass, "" if it lists alternatives.
	Class string
	// Mode is ExactCount or All, "" for the default.
	Mode  string
	Count int64
	Admin bool
	// Alternatives is how many subrequests it lists to choose from.
	Alternatives int
	// Selectors are CEL expressions about a device, all of which have to be true.
	Selectors []string
	// Capacity are the amounts of named capacities, in bytes or units.
	Capacity map[string]int64
}

// Config is one opaque configuration.
type Config struct {
	// Path is where it is, such as spec.devices.config[0].
	Path   string
	Driver string
	// Requests are those it is for, none for all.
	Requests []string
	// Parameters is JSON.
	Parameters []byte
}

// Class is the part of a DeviceClass that the rules look at.
type Class struct {
	Name      string
	Selectors []string
	Configs   []Config
}

// IsOurs reports whether a configuration is for our driver.
func (c *Config) IsOurs() bool { return c.Driver == wire.ClaimDriver }

// AreForDriver reports whether one of some configurations is for our driver.
func AreForDriver(configs []Config) bool {
	return slices.ContainsFunc(configs, func(c Config) bool { return c.IsOurs() })
}

// NamesDriver reports whether a claim says by itself that it is for our driver: by a configuration,
// or by the name of the class that every cluster with our driver has. A claim of another class may
// be for our driver as well, which only the selectors of the class say.
func (c *Claim) NamesDriver() bool {
	return AreForDriver(c.Configs) ||
		slices.ContainsFunc(c.Requests, func(q Request) bool { return q.Class == wire.ClaimDriver })
}

// isFor reports whether a configuration is for a request.
func (c *Config) isFor(request string) bool {
	return len(c.Requests) == 0 || slices.Contains(c.Requests, request)
}
