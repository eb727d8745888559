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

// tenants are those who have a share of a device at the same time, told apart by their users or
// namespaces. The zero T is one that is not known, and another than any. A device that serves all
// does not count them.
type tenants[T comparable] struct {
	some, several bool // somebody is there; they are not known to be the same
	one           T
}

func (a tenants[T]) mergedWith(b tenants[T]) tenants[T] {
	switch {
	case !b.some:
		return a
	case !a.some:
		return b
	}
	a.several = a.several || b.several || !a.admitsTenant(b.one)
	return a
}

// admitsTenant reports whether one more is served beside those that are there.
func (a tenants[T]) admitsTenant(one T) bool {
	var unknown T
	return !a.some || !a.several && a.one != unknown && a.one == one
}
