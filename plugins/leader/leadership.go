// SPDX-License-Identifier: Apache-2.0

package leader

import "time"

// Leadership says whether this process may write: of several schedulers one does at a time. Safe
// for concurrent use.
type Leadership interface {
	// Begin is called before a write, which must be over at the time that it returns; done is
	// called then. An error says that another process may lead.
	Begin() (until time.Time, done func(), err error)
}

var _ Leadership = (*Term)(nil)

// Sole is the leadership of a scheduler that is the only one.
type Sole struct{}

// Begin implements Leadership: an hour is longer than any call.
func (Sole) Begin() (until time.Time, done func(), err error) {
	return time.Now().Add(time.Hour), func() {}, nil
}
