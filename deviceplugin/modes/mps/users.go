// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"fmt"
	"slices"
	"strconv"

	"deviceshare/sharing"
)

// otherUser says whose container on the device runs as another user at a time when
// c does, "" when nobody's does. An MPS server serves one user: processes of
// another wait until the last process of the first has ended.
//
// A container that names no user runs as its image says, which is not known here: it is
// taken for another user than anybody.
func otherUser(c claimRecord, there []claimRecord) (string, bool) {
	for _, o := range there {
		switch {
		case o.owner == c.owner && (o.Container == c.Container || o.Kind == initKind || c.Kind == initKind):
			continue // of one pod, and never at the same time
		case o.Kind == initKind && hasStartedApp(o.owner, there):
			continue // it has ended: an app container of its pod started
		case sameUser(o.User, c.User):
			continue
		}
		return fmt.Sprintf("container %s of pod %s/%s runs there as %s and this one would as %s: set securityContext.%s",
			o.Container, o.Namespace, o.Pod, describeUser(o.User), describeUser(c.User), suggestRunAsUser(o.User)), true
	}
	return "", false
}

// How claims write the kinds of containers: one that ends before the app containers
// start, and one of those.
const (
	initKind = "init"
	appKind  = "app"
)

// hasStartedApp reports whether an app container of an owner was prepared.
func hasStartedApp(o sharing.Owner, there []claimRecord) bool {
	return slices.ContainsFunc(there, func(c claimRecord) bool { return c.owner == o && c.Kind == appKind })
}

func sameUser(a, b *int64) bool { return a != nil && b != nil && *a == *b }

func describeUser(id *int64) string {
	if id == nil {
		return "the user of its image"
	}
	return "user " + strconv.FormatInt(*id, 10)
}

// suggestRunAsUser is what makes a container run as the user of one that is there.
func suggestRunAsUser(id *int64) string {
	if id == nil {
		return "runAsUser in both pods, to the same user"
	}
	return "runAsUser: " + strconv.FormatInt(*id, 10) + " in this pod"
}
