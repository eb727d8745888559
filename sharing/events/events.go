// SPDX-License-Identifier: Apache-2.0

// Package events has the reasons of all events that this project's programs write. docs/events.md
// explains each to whoever sees it. To add one, add it here and there.
package events

// Events of pods.
const (
	// DevicePrepareFailed: the container cannot start now; the kubelet tries again.
	DevicePrepareFailed = "DevicePrepareFailed"
	// DeviceInjectionIgnored: the runtime started a container without what it was given.
	DeviceInjectionIgnored = "DeviceInjectionIgnored"
	// ProcessUnlimited: a process with a share runs without the library that limits it.
	ProcessUnlimited = "ProcessUnlimited"
	// DeviceUsedWithoutShare: a process has memory of a device that it was not given. Of nodes,
	// too.
	DeviceUsedWithoutShare = "DeviceUsedWithoutShare"
	// DevicePlacedAnew: the pod is evicted, because its node cannot start it as it was placed.
	DevicePlacedAnew = "DevicePlacedAnew"
	// DevicePlacementRefused: the same, but the pod would not be made again.
	DevicePlacementRefused = "DevicePlacementRefused"
	// DeviceModeFallback: the pod got another mode than the first that it names.
	DeviceModeFallback = "DeviceModeFallback"
	// DeviceShareKept: the pod keeps what the node no longer offers.
	DeviceShareKept = "DeviceShareKept"
	// DeviceModeKept: the pod keeps its mode on a device that was given another one.
	DeviceModeKept = "DeviceModeKept"
	// DeviceRequestTooLarge: no device has as much memory as a container asks for.
	DeviceRequestTooLarge = "DeviceRequestTooLarge"
	// MPSDaemonDied: the MPS daemon of a device died. Of nodes, too.
	MPSDaemonDied = "MPSDaemonDied"
	// DevicePlacementUnreadable: what the pod holds cannot be read; its node takes no pods.
	DevicePlacementUnreadable = "DevicePlacementUnreadable"
	// DevicePlacementUnsigned: no known key vouches for the pod's placement.
	DevicePlacementUnsigned = "DevicePlacementUnsigned"
	// DevicePlacementEdited: the pod's placement was edited after it was bound.
	DevicePlacementEdited = "DevicePlacementEdited"
	// DeviceNeighboursUnreadable: it cannot be read which pods may share the pod's devices.
	DeviceNeighboursUnreadable = "DeviceNeighboursUnreadable"
	// DevicePlacementMissing: another scheduler bound the pod without giving it devices.
	DevicePlacementMissing = "DevicePlacementMissing"
)

// Events of pods that have to leave.
const (
	// Preempted: a more important pod of the same queue gets the room.
	Preempted = "Preempted"
	// Reclaimed: a pod of a queue that has less than it deserves gets the room.
	Reclaimed = "Reclaimed"
	// DriverUpgrade: the driver of the pod's node is replaced.
	DriverUpgrade = "DriverUpgrade"
	// DeviceDrained: people drain a device of which the pod has a share.
	DeviceDrained = "DeviceDrained"
	// Moved: a pod that waits gets the room, and a place is kept for this one elsewhere.
	Moved = "Moved"
)

// Events of queues.
const (
	// QueueLimitDoubtful: a limit that cannot be meant.
	QueueLimitDoubtful = "QueueLimitDoubtful"
	// NamespaceQuotaDoubtful: a limit in a ResourceQuota that cannot be meant, or that is no limit.
	NamespaceQuotaDoubtful = "NamespaceQuotaDoubtful"
)

// Events of nodes.
const (
	// GPUDriverUnavailable: the driver cannot be opened, or does not answer.
	GPUDriverUnavailable = "GPUDriverUnavailable"
	// GPUDriverUpgradePlanned: the driver will be replaced.
	GPUDriverUpgradePlanned = "GPUDriverUpgradePlanned"
	// GPUDriverClaimed: the driver is being replaced, or was let go; no new pods.
	GPUDriverClaimed = "GPUDriverClaimed"
	// GPUDriverUpgradeHeldUp: pods hold devices, and are not evicted.
	GPUDriverUpgradeHeldUp = "GPUDriverUpgradeHeldUp"
	// ContainerRuntimeUnfit: the container runtime reads no CDI specifications.
	ContainerRuntimeUnfit = "ContainerRuntimeUnfit"
	// NVIDIARuntimeUnfit: NVIDIA's runtime gives containers devices that they were not given.
	NVIDIARuntimeUnfit = "NVIDIARuntimeUnfit"
	// DeviceNodesMissing: the node lacks device nodes that containers are to get.
	DeviceNodesMissing = "DeviceNodesMissing"
	// GPUUnhealthy: a device gets no new pods.
	GPUUnhealthy = "GPUUnhealthy"
	// GPUHealthy: a device is healthy again.
	GPUHealthy = "GPUHealthy"
	// GPUOfferedTwice: another device plugin or a DRA driver of the node offers a device, too.
	GPUOfferedTwice = "GPUOfferedTwice"
	// GPULicenceMissing: a vGPU has no licence, or one that ends soon.
	GPULicenceMissing = "GPULicenceMissing"
	// GPUModeUnusable: this node cannot offer a device in its mode.
	GPUModeUnusable = "GPUModeUnusable"
	// GPUModeInterrupted: something that a device's mode needs does not work.
	GPUModeInterrupted = "GPUModeInterrupted"
	// GPUModeRestored: the device takes pods in its mode again.
	GPUModeRestored = "GPUModeRestored"
	// GPUModeWaiting: a device waits for pods to end before it changes its mode.
	GPUModeWaiting = "GPUModeWaiting"
	// GPUModeChanged: a device is in its mode.
	GPUModeChanged = "GPUModeChanged"
	// GPUModeChangeFailed: a mode change failed and is tried again.
	GPUModeChangeFailed = "GPUModeChangeFailed"
	// GPUModeNeedsAdministrator: only an administrator can bring a device into its mode.
	GPUModeNeedsAdministrator = "GPUModeNeedsAdministrator"
	// DeviceOfferExceeded: pods hold more than the configuration offers now.
	DeviceOfferExceeded = "DeviceOfferExceeded"
	// DeviceConfigInvalid: a ConfigMap has mistakes; the last good text stays in force.
	DeviceConfigInvalid = "DeviceConfigInvalid"
	// DeviceConfigUnknown: no good text of a ConfigMap is known.
	DeviceConfigUnknown = "DeviceConfigUnknown"
	// DeviceConfigNotKept: the settings cannot be written to the node's disk.
	DeviceConfigNotKept = "DeviceConfigNotKept"
	// DevicePublishFailed: the node object cannot be written.
	DevicePublishFailed = "DevicePublishFailed"
	// KubeletRecordUnavailable: one of the kubelet's records cannot be read.
	KubeletRecordUnavailable = "KubeletRecordUnavailable"
	// DeviceCheckpointBroken: the device plugin's own record is damaged.
	DeviceCheckpointBroken = "DeviceCheckpointBroken"
	// DeviceReconcileFailed: something on the node could not be repaired after a start.
	DeviceReconcileFailed = "DeviceReconcileFailed"
	// DeviceAmountsInTransition: pods of Volcano's device plugin still hold memory or cores.
	DeviceAmountsInTransition = "DeviceAmountsInTransition"
	// DeviceInventoryUnreadable: the scheduler cannot read the node's devices.
	DeviceInventoryUnreadable = "DeviceInventoryUnreadable"
	// DeviceCordonsUnreadable: the scheduler cannot read which of the node's devices are cordoned.
	DeviceCordonsUnreadable = "DeviceCordonsUnreadable"
	// GPUDrainHeldUp: pods on a device that is drained do not leave.
	GPUDrainHeldUp = "GPUDrainHeldUp"
)

// Events of ConfigMaps.
const (
	// DeviceConfigurationInvalid: the scheduler found a mistake.
	DeviceConfigurationInvalid = "DeviceConfigurationInvalid"
	// SchedulerConfigurationInvalid: the scheduler found a mistake in its own configuration.
	SchedulerConfigurationInvalid = "SchedulerConfigurationInvalid"
	// NodeTypeDoubtful: what is written of a type of nodes cannot be read, or nodes contradict it.
	NodeTypeDoubtful = "NodeTypeDoubtful"
)

// Events of our scheduler's Deployment.
const (
	// SecondScheduler: another scheduler takes the same pods; ours places none.
	SecondScheduler = "SecondScheduler"
)

// Resolved follows the reason of an event of a node or Deployment when what it reported is over.
const Resolved = "Resolved"
