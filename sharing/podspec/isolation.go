// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"slices"
	"strings"
)

// Isolation is how far the containers of a pod are apart from their node.
type Isolation struct {
	// RuntimeClass is the RuntimeClass that the pod names; empty is the node's own runtime.
	RuntimeClass string
	// UserNamespace says that users in the pod are others on the node (hostUsers: false).
	UserNamespace bool
}

// AnyRuntimeClass, in a list of RuntimeClasses, stands for all of them.
const AnyRuntimeClass = "*"

// IsolationRules is which pods may have devices. The zero value is the strictest.
type IsolationRules struct {
	// RuntimeClasses are the names that pods may give; a pod that names none is always fine.
	RuntimeClasses []string
	// UserNamespaces says that pods may have users of their own.
	UserNamespaces bool
}

// Refusal says which field keeps a pod from having devices, why, and what to do; false if
// none does. Its words are those of the policy deviceshare-requests of the chart.
func (r IsolationRules) Refusal(i Isolation) (why string, is bool) {
	if i.UserNamespace && !r.UserNamespaces {
		return "spec.hostUsers: NVIDIA's hook for containers with devices fails in a user namespace; leave it out, " +
			"or have the administrator set pods.userNamespaces", true
	}
	if i.RuntimeClass == "" || slices.Contains(r.RuntimeClasses, i.RuntimeClass) || slices.Contains(r.RuntimeClasses, AnyRuntimeClass) {
		return "", false
	}
	known := "none is known"
	if len(r.RuntimeClasses) > 0 {
		known = "known are " + strings.Join(r.RuntimeClasses, ", ")
	}
	return fmt.Sprintf("spec.runtimeClassName: it is not known whether containers of %s get what they are given (%s); "+
		"leave it out, or have the administrator add it to pods.runtimeClasses", i.RuntimeClass, known), true
}
