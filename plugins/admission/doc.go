// SPDX-License-Identifier: Apache-2.0

// Package admission is the webhook that helps people write pods that ask for
// GPU shares.
//
// It completes (path /mutate): every container that asks for memory, cores or a
// percentage and names no number of devices gets one device (defaultGPUNum of the device config), because the kubelet
// calls a device plugin only for the number; and a pod that asks and names no
// scheduler, or the default one, gets the Volcano scheduler. It removes the
// annotations that only a scheduler writes: a pod made from the text of another
// would carry that one's placement. Nothing else of a pod is touched.
//
// It refuses (path /validate) a pod that cannot mean what it says, with every
// mistake in the answer. The rules are those of sharing/request, the same as the
// scheduler's: the webhook is a convenience, never the only guard. It fails
// open. A pod it never saw, because it was down or the pod older than it, is
// judged by the scheduler, whose event says what to write.
//
// It refuses (path /guard) that anybody but the scheduler and the device plugin
// changes, on a pod that exists, the annotations by which it holds devices. The
// right to patch pods would else be the right to take devices from others. It fails
// closed: what cannot be asked about is not done. The scheduler and the device
// plugin write these annotations with the binding, which is no update of a pod.
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
// letting it in as long as it brings no placement with it: a container without one
// does not start, and a pod without one holds nothing. A pod that is made while the
// webhook is down may bring one; our scheduler overwrites it when it binds the pod,
// another one does not.
package admission
