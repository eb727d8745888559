// SPDX-License-Identifier: Apache-2.0

// Package admission is the webhook that helps people write pods that ask for
// GPU shares.
//
// It completes (path /mutate): every container that asks for memory, cores or a
// percentage and names no number of devices gets one device (defaultGPUNum of the device config), because the kubelet
// calls a device plugin only for the number; and a pod that asks and names no
// scheduler, or the default one, gets the Volcano scheduler. Nothing else of a
// pod is touched.
//
// It refuses (path /validate) a pod that cannot mean what it says, with every
// mistake in the answer. The rules are those of sharing/request, the same as the
// scheduler's: the webhook is a convenience, never the only guard. It fails
// open. A pod it never saw, because it was down or the pod older than it, is
// judged by the scheduler, whose event says what to write.
//
// Only pods are handled. The template of a Deployment or a Job is not looked
// at: its pods are completed one by one, and the refusal of one stands in the
// events of the ReplicaSet or Job that tried to make it. Pods in excluded
// namespaces, mirror pods of the kubelet, and pods that ask for none of our
// resources cause no call at all (package registration).
//
// A pod that asks for our resources and names a third scheduler is admitted with
// a warning. To refuse it would be wrong where that scheduler is another Volcano
// of the same cluster, which this webhook cannot know; to move it to ours would
// override what somebody wrote on purpose; and to be silent would leave a pod
// that waits for a placement which nobody makes. Nothing unsafe follows from
// letting it in: a container without a placement does not start.
package admission
