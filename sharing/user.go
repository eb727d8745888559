// SPDX-License-Identifier: Apache-2.0

package sharing

// User is the user id that a container runs as. The zero value is one that only its image knows.
type User struct {
	ID    int64 // 0 where it is not known
	Known bool
}

// KnownUser is a user that the pod names.
func KnownUser(id int64) User { return User{ID: id, Known: true} }

// MayBeRoot reports whether a container of the user may run as root: it does, or only its image
// knows.
func (u User) MayBeRoot() bool { return !u.Known || u.ID == 0 }

// users are those as whom the containers on a device run at the same time. A device that serves
// all users does not count them.
type users struct {
	some, several bool // somebody is there; they are not known to be the same
	one           User
}

func (a users) mergedWith(b users) users {
	switch {
	case !b.some:
		return a
	case !a.some:
		return b
	}
	a.several = a.several || b.several || !a.admitsContainerOf(b.one)
	return a
}

// admitsContainerOf reports whether a container that runs as a user is served beside those that are
// there.
func (a users) admitsContainerOf(u User) bool {
	return !a.some || !a.several && a.one.Known && a.one == u
}
