// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"fmt"
	"slices"
)

// requireTenant returns an error if the device does not serve a container beside those that are
// there: of another namespace, as another user, or as root.
func (p *Preparer) requireTenant(c claimRecord, there []claimRecord) error {
	if why, clash := otherNamespace(c, there); clash && !p.cfg.MultiNamespace {
		return fmt.Errorf("it serves pods of one namespace at a time; %s (--mps-tenants=any lets all namespaces share a device)", why)
	}
	if !p.cfg.RootUser && mayBeRoot(c) && !isThere(c, there) {
		return fmt.Errorf("its MPS daemon serves no root; the container would run as %s: set securityContext.runAsUser to a user other than 0 "+
			"(--mps-root-user=allow serves root)", describeUser(c.User))
	}
	if why, clash := otherUser(c, there); clash && !p.cfg.MultiUser {
		return fmt.Errorf("its MPS server serves one user at a time; %s (--mps-users=any lets all users share a server)", why)
	}
	return nil
}

// otherNamespace says which pod of another namespace has the device. A pod that has begun on the
// device goes on, beside whomever.
func otherNamespace(c claimRecord, there []claimRecord) (string, bool) {
	if slices.ContainsFunc(there, func(o claimRecord) bool { return o.owner == c.owner }) {
		return "", false
	}
	i := slices.IndexFunc(there, func(o claimRecord) bool { return o.Namespace != c.Namespace })
	if i < 0 {
		return "", false
	}
	return fmt.Sprintf("pod %s/%s has it, and this one is of namespace %s", there[i].Namespace, there[i].Pod, c.Namespace), true
}

// mayBeRoot reports whether a container runs as root, or as a user that only its image knows.
func mayBeRoot(c claimRecord) bool { return c.User == nil || *c.User == 0 }

// isThere reports whether the container was served before, and starts again.
func isThere(c claimRecord, there []claimRecord) bool {
	return slices.ContainsFunc(there, func(o claimRecord) bool { return o.owner == c.owner && o.Container == c.Container })
}
