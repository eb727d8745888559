// SPDX-License-Identifier: Apache-2.0

package wire

import "strings"

// Family is how our names begin, in lower case, of resources as well as of annotations. What begins
// so and is read by nobody is a mistake of the one who wrote it.
const Family = "volcano.sh/vgpu"

// IsOurs reports whether a name begins as ours do, ignoring case. It allocates nothing.
func IsOurs(name string) bool { return hasPrefixFold(name, Family) }

// UserKeys are the annotations that users write and that are read.
func UserKeys() []string {
	return []string{UserMode, UserUseModels, UserNotModels, UserUseIDs, UserNotIDs, UserGroupPolicy, UserNeighbours, UserNotBeside, UserPolicy, UserSplit, UserNUMA, UserVirtual, UserMayMove, UserRestartCost}
}

// WrittenKeys are the annotations that schedulers and device plugins write on pods.
func WrittenKeys() []string {
	return []string{PodPlacement, PodSignature, PodNode, PodTime, PodAssigned, PodToAllocate, PodBindPhase, PodBindTime}
}

// IsOfFamily reports whether an annotation is named like those that choose devices, ours and
// HAMi's, whose domains people mix. It ignores case.
func IsOfFamily(key string) bool {
	for _, prefix := range [...]string{Family, "volcano.sh/use-gpu", "volcano.sh/nouse-gpu", "nvidia.com/use-gpu", "nvidia.com/nouse-gpu", "nvidia.com/vgpu"} {
		if hasPrefixFold(key, prefix) {
			return true
		}
	}
	return false
}

// Foreign is a name of another way to share GPUs.
type Foreign struct {
	// Of is whose name it is.
	Of string
	// Instead is our name for the same, "" if there is nothing like it.
	Instead string
}

// Whose names are known.
const (
	hami         = "HAMi"
	olderVolcano = "Volcano's older GPU sharing"
)

// ForeignResource returns what a resource is called here that is named as in another way to share
// GPUs; false for all others. It allocates nothing.
func ForeignResource(name string) (Foreign, bool) {
	switch name {
	case "volcano.sh/gpu-memory":
		return Foreign{olderVolcano, ResourceMemory}, true
	case "volcano.sh/gpu-number":
		return Foreign{olderVolcano, ResourceNumber}, true
	case "nvidia.com/gpumem", "hami.io/gpumem":
		return Foreign{hami, ResourceMemory}, true
	case "nvidia.com/gpumem-percentage", "hami.io/gpumem-percentage":
		return Foreign{hami, ResourcePercentage}, true
	case "nvidia.com/gpucores", "hami.io/gpucores":
		return Foreign{hami, ResourceCores}, true
	case "hami.io/gpu":
		return Foreign{hami, ResourceNumber}, true
	case "nvidia.com/priority":
		return Foreign{Of: hami}, true
	}
	return Foreign{}, false
}

// ForeignKey is ForeignResource for annotations.
func ForeignKey(key string) (Foreign, bool) {
	switch key {
	case "nvidia.com/use-gpuuuid":
		return Foreign{hami, UserUseIDs}, true
	case "nvidia.com/nouse-gpuuuid":
		return Foreign{hami, UserNotIDs}, true
	case "nvidia.com/vgpu-mode":
		return Foreign{hami, UserMode}, true
	case "nvidia.com/numa-bind":
		return Foreign{hami, UserNUMA}, true
	case "hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy":
		return Foreign{hami, UserPolicy}, true
	case "hami.io/device-scoring-weights":
		return Foreign{Of: hami}, true
	}
	return Foreign{}, false
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
