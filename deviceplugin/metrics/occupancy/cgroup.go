// SPDX-License-Identifier: Apache-2.0

package occupancy

import (
	"slices"
	"strings"

	"github.com/prometheus/procfs"

	"deviceshare/sharing"
)

// PodOf finds the pod that a process belongs to by its control groups: by the UID
// that the kubelet puts into the names it makes. It knows both versions of cgroups,
// and both drivers of the kubelet:
//
//	/kubepods/burstable/pod<uid>/<container>
//	/kubepods.slice/.../kubepods-burstable-pod<uid>.slice/cri-containerd-<container>.scope
//	/system.slice/containerd.service/kubepods-burstable-pod<uid>.slice:cri-containerd:<container>
//
// with "_" for "-" in the UID in the latter two. The outermost name counts: a
// container may make groups below its own. Groups that name no pod, or two, are of
// none: the result is false.
func PodOf(groups []procfs.Cgroup) (sharing.Owner, bool) {
	var found sharing.Owner
	for _, group := range groups {
		owner, ok := podOfPath(group.Path)
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
			if i := strings.LastIndex(slice, "-pod"); i >= 0 && isKubepods(slice[:i]) {
				return parseOwner(strings.ReplaceAll(slice[i+len("-pod"):], "_", "-"))
			}
			below = below || isKubepods(slice)
			continue
		}
		if uid, ok := strings.CutPrefix(name, "pod"); ok && below {
			return parseOwner(uid)
		}
		// "..": as seen from a container's cgroup namespace, which is below kubepods.
		below = below || name == "kubepods" || name == ".."
	}
	return "", false
}

// isKubepods reports whether a slice's name, parts of which are joined by "-", has
// that of the kubelet's root for pods.
func isKubepods(slice string) bool {
	return strings.Contains("-"+slice+"-", "-kubepods-")
}

// IsOf reports whether one of a process's control groups is named after a container, which is id to
// its runtime: "<id>", "cri-containerd-<id>.scope", "crio-<id>.scope" or "...:cri-containerd:<id>".
func IsOf(groups []procfs.Cgroup, id string) bool {
	return slices.ContainsFunc(groups, func(g procfs.Cgroup) bool { return strings.Contains(g.Path, id) })
}

// parseOwner checks a UID: the API server's have 36 characters.
func parseOwner(uid string) (sharing.Owner, bool) {
	if uid == "" || len(uid) > 64 || strings.Trim(uid, "0123456789abcdefABCDEF-") != "" {
		return "", false
	}
	return sharing.Owner(uid), true
}
