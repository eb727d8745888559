// SPDX-License-Identifier: Apache-2.0

package arguments

import (
	"maps"
	"reflect"

	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/nodes"
)

// Memory keeps the arguments of the last session, and the last ones that could be used. The zero
// value has seen none. It is not safe for concurrent use.
type Memory struct {
	raw  framework.Arguments
	seen bool
	now  Reading
	// whole are the settings plain with what Complete adds.
	whole, plain *nodes.Settings
}

// Reading is what the arguments of a session come to.
type Reading struct {
	// Arguments are those in force.
	Arguments
	// Usable is false if no arguments could be used yet.
	Usable bool
	// IsOther says that the configuration has other arguments than for the session before, Mistakes
	// what is wrong with them, and IsAdopted that they are in force now.
	IsOther   bool
	Mistakes  []Mistake
	IsAdopted bool
}

// Read reads the arguments of a session if they changed. A value that cannot be used keeps what was
// in force before; they are not usable only if there was nothing before and a mistake withholds
// them.
func (m *Memory) Read(raw framework.Arguments) Reading {
	m.now.IsOther, m.now.IsAdopted = !m.seen || !reflect.DeepEqual(m.raw, raw), false
	if !m.now.IsOther {
		return m.now
	}
	m.raw, m.seen = maps.Clone(raw), true
	args, mistakes := Read(raw)
	m.now.Mistakes = mistakes
	if bad := worstConsequence(mistakes); bad > LeftOut && m.now.Usable || bad == Withholding {
		return m.now
	}
	m.now.Arguments, m.now.Usable, m.now.IsAdopted = args, true, true
	m.whole, m.plain = nil, nil
	return m.now
}

// Complete returns the settings with the rules of the arguments in force, and whether Volcano
// allocates claims. It is the same value for the same settings: nodes are read again when it is
// another one.
func (m *Memory) Complete(plain *nodes.Settings, allocatesClaims bool) *nodes.Settings {
	rules := m.now.Apart
	if len(rules) == 0 && !allocatesClaims {
		return plain
	}
	if m.plain != plain || m.whole.AllocatesClaims != allocatesClaims {
		whole := *plain
		whole.Apart, whole.AllocatesClaims = rules, allocatesClaims
		m.plain, m.whole = plain, &whole
	}
	return m.whole
}
