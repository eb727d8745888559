// SPDX-License-Identifier: Apache-2.0

package wire

// Resource names. They are defaults: the device ConfigMap can rename each.
const (
	// ResourceNumber counts devices. Written by users in containers; the device
	// plugin offers devices x sharers of it; read by the kubelet, the scheduler
	// and the webhook. It is the only resource of the device plugin, so the
	// kubelet calls the device plugin only for containers that name it.
	ResourceNumber = "volcano.sh/vgpu-number"
	// ResourceMemory is memory per device, in units of the memory factor (1 MiB
	// by default). Written by users; the device plugin puts the sum into the
	// node's status; read by the scheduler.
	ResourceMemory = "volcano.sh/vgpu-memory"
	// ResourceCores is compute in percent per device. Written and read like
	// ResourceMemory.
	ResourceCores = "volcano.sh/vgpu-cores"
	// ResourcePercentage is memory per device in percent of the device that is
	// chosen. Written by users, read by the scheduler, offered by nobody.
	ResourcePercentage = "volcano.sh/vgpu-memory-percentage"
)

// Node annotations.
const (
	// NodeInventory holds the devices of the node as versioned JSON. Written by
	// our device plugin, read by our scheduler.
	NodeInventory = "volcano.sh/node-vgpu-inventory"
	// NodeRegister holds the devices in the legacy grammar. Written by both device
	// plugins, read by Volcano's scheduler and, where NodeInventory is missing,
	// by ours.
	NodeRegister = "volcano.sh/node-vgpu-register"
	// NodeHandshake is a sign of life that Volcano's scheduler up to v1.14.2 and
	// v1.15.0 wants. Written by our device plugin when it is told to, read and
	// overwritten by those schedulers, never read by ours.
	NodeHandshake = "volcano.sh/node-vgpu-handshake"
	// NodeWithdraw says until when (RFC 3339) the device plugin of the node is to take back all
	// it can, since the plugins of the cluster are being uninstalled. Written and removed by
	// the uninstallation, read by our device plugin.
	NodeWithdraw = "volcano.sh/vgpu-withdraw"
	// NodeReleaseDriver says until when (RFC 3339) the device plugin of the node is not to use the
	// driver, since an administrator replaces it. Written and removed by people, with kubectl
	// deviceshare release; read by our device plugin.
	NodeReleaseDriver = "volcano.sh/vgpu-release-driver"
	// LongestReleaseSeconds is how far ahead the time of NodeReleaseDriver may lie.
	LongestReleaseSeconds = 24 * 3600
	// NodeLock is the lock of the legacy components: Volcano's scheduler sets it
	// when deviceshare.NodeLockEnable is true, either device plugin removes it; ours
	// only when it was taken for the pod that starts. Our scheduler sets and reads none.
	NodeLock = "hamivgpu"
)

// Pod annotations the scheduler writes, all in the same write as the binding.
const (
	// PodPlacement is the decision as versioned JSON. Written by our scheduler;
	// read by both our parts and authoritative when present.
	PodPlacement = "volcano.sh/vgpu-placement"
	// PodSignature vouches for PodPlacement, for one pod on one node. Written by our scheduler
	// where it has a key; read by our device plugin where it has keys to check it by.
	PodSignature = "volcano.sh/vgpu-placement-signature"
	// PodNode is the name of the node the decision is about. Written by both
	// schedulers, read by both device plugins.
	PodNode = "volcano.sh/vgpu-node"
	// PodTime is when it was decided, in Unix seconds. The legacy device plugin
	// overwrites it with MaxUint64 when it is done; so does ours for pods that
	// the legacy scheduler placed. Our scheduler writes that at once for nodes with
	// our device plugin, and so for the next two; see Receipt.
	PodTime = "volcano.sh/vgpu-time"
	// PodAssigned is the decision in the legacy grammar. Written by both schedulers,
	// never changed afterwards, read by everybody.
	PodAssigned = "volcano.sh/vgpu-ids-new"
	// PodToAllocate starts as a copy of PodAssigned; the legacy device plugin erases
	// it entry by entry, ours as a whole for pods that the legacy scheduler placed. Not
	// read by us.
	PodToAllocate = "volcano.sh/devices-to-allocate"
	// PodBindPhase is PhaseAllocating when the scheduler writes it; the legacy device
	// plugin then writes PhaseSuccess or PhaseFailed. Ours writes PhaseSuccess for
	// pods that the legacy scheduler placed, and reads whether it has.
	PodBindPhase = "volcano.sh/bind-phase"
	// PodBindTime is when the binding was written, in Unix seconds. Read by our
	// device plugin beside NodeLock.
	PodBindTime = "volcano.sh/bind-time"
)

// UtilityPod is a label of pods that ask autoscalers for a node. Written by our scheduler, which
// finds them by it; the value tells which of them are alike.
const UtilityPod = "volcano.sh/vgpu-node-wanted"

// Values of PodBindPhase.
const (
	PhaseAllocating = "allocating"
	PhaseSuccess    = "success"
	PhaseFailed     = "failed"
)

// Pod annotations users write and the scheduler and the webhook read.
const (
	// UserMode names the modes the pod accepts: one, or a list in order of
	// preference.
	UserMode = "volcano.sh/vgpu-mode"
	// UserUseModels and UserNotModels are comma lists of names of models, see sharing.IsModel.
	UserUseModels = "nvidia.com/use-gputype"
	UserNotModels = "nvidia.com/nouse-gputype"
	// UserUseIDs and UserNotIDs are comma lists of exact device UUIDs.
	UserUseIDs = "volcano.sh/vgpu-use-gpuuuid"
	UserNotIDs = "volcano.sh/vgpu-nouse-gpuuuid"
	// UserGroupPolicy is GroupSpread: pods of one group on different devices.
	UserGroupPolicy = "volcano.sh/vgpu-podgroup-policy"
	// UserNeighbours says which other pods may have shares of the pod's devices.
	UserNeighbours = "volcano.sh/vgpu-neighbours"
	// UserNotBeside names pods by their labels that must not.
	UserNotBeside = "volcano.sh/vgpu-not-beside"
	// UserPolicy names the placement policy of the pod.
	UserPolicy = "volcano.sh/vgpu-policy"
	// UserSplit is SplitEven: the amounts of a container are totals of its devices. The device
	// plugin reads it too.
	UserSplit = "volcano.sh/vgpu-split"
	// UserNUMA is NUMASingle: all devices of the pod are of one NUMA node.
	UserNUMA = "volcano.sh/vgpu-numa"
	// UserVirtual is VirtualNever or VirtualOnly: whether devices may be vGPUs.
	UserVirtual = "volcano.sh/vgpu-virtual"
	// UserMayMove is MayMove or MustStay: whether the pod may be made again elsewhere to make room.
	// It is also a label of namespaces, for pods that do not say it.
	UserMayMove = "volcano.sh/vgpu-may-move"
	// UserRestartCost is how much work the end of the pod loses at most, a duration such as 10m.
	UserRestartCost = "volcano.sh/vgpu-restart-cost"
)

// MayMove and MustStay are the values of UserMayMove.
const (
	MayMove  = "true"
	MustStay = "false"
)

// NUMASingle is the only value of UserNUMA.
const NUMASingle = "single"

// VirtualNever and VirtualOnly are the values of UserVirtual.
const (
	VirtualNever = "never"
	VirtualOnly  = "only"
)

// SplitEven is the only value of UserSplit.
const SplitEven = "even"

// GroupSpread is the only value of UserGroupPolicy.
const GroupSpread = "spread"

// Pod annotations that name the pod's group. Written by Volcano's controllers,
// read by the scheduler.
const (
	GroupName        = "scheduling.k8s.io/group-name"
	VolcanoGroupName = "scheduling.volcano.sh/group-name"
)
