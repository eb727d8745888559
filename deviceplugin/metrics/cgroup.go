// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"

	"deviceshare/sharing"
)

// PodOf finds in the text of /proc/<pid>/cgroup the pod that a process belongs to,
// by the UID that the kubelet puts into the names it makes. It knows both versions
// of cgroups (cgroups(7): lines "number:controllers:path", and "0::path"), and both
// drivers of the kubelet:
//
//	/kubepods/burstable/pod<uid>/<container>
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<container>.scope
//	/system.slice/containerd.service/kubepods-burstable-pod<uid>.slice:cri-containerd:<container>
//
// with "_" for "-" in the UID in the latter two. The outermost name counts: a
// container may make groups below its own. Text that names no pod, or two, is of
// none.
func PodOf(text string) (sharing.Owner, bool) {
	var found sharing.Owner
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		owner, ok := podOfPath(parts[2])
		switch {
		case !ok:
		case found != "" && found != owner:
			return "", false
		default:
			found = owner
		}
	}
	return found, found != ""
}

// podOfPath finds the pod in one path.
func podOfPath(path string) (sharing.Owner, bool) {
	below := false // kubepods
	for name := range strings.SplitSeq(path, "/") {
		name, _, _ = strings.Cut(name, ":")
		slice, systemd := strings.CutSuffix(name, ".slice")
		if systemd {
			// "kubepods-burstable-pod<uid>", perhaps behind the kubelet's own root.
			if i := strings.LastIndex(slice, "-pod"); i >= 0 && kubepods(slice[:i]) {
				return owner(strings.ReplaceAll(slice[i+len("-pod"):], "_", "-"))
			}
			below = below || kubepods(slice)
			continue
		}
		if uid, ok := strings.CutPrefix(name, "pod"); ok && below {
			return owner(uid)
		}
		// "..": as seen from a container's cgroup namespace, which is below kubepods.
		below = below || name == "kubepods" || name == ".."
	}
	return "", false
}

// kubepods reports whether a slice's name, parts of which are joined by "-", has
// that of the kubelet's root for pods.
func kubepods(slice string) bool {
	return strings.Contains("-"+slice+"-", "-kubepods-")
}

// owner checks a UID: the API server's have 36 characters.
func owner(uid string) (sharing.Owner, bool) {
	if uid == "" || len(uid) > 64 || strings.Trim(uid, "0123456789abcdefABCDEF-") != "" {
		return "", false
	}
	return sharing.Owner(uid), true
}
