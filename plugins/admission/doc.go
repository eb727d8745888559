// SPDX-License-Identifier: Apache-2.0

// Package admission is the webhook that helps people write pods that ask for GPU shares.
// It has four parts, each with a path of its own.
//
// Mutation (/mutate) completes pods. A container that asks for memory, cores or a
// percentage but names no number of devices gets defaultGPUNum of the device
// configuration, because the kubelet calls a device plugin only for the number. A pod that
// asks and names no scheduler, or the default one, gets the Volcano scheduler. Annotations
// that only a scheduler writes are removed: a pod copied from another one would carry that
// one's placement. What a container that asks says in NVIDIA_VISIBLE_DEVICES is removed: NVIDIA's
// runtime would give it the devices that it names, whole. Nothing else of a pod is touched.
//
// Validation (/validate) refuses pods that cannot mean what they say, with every mistake
// in the answer. The rules are those of sharing/request, as for the scheduler. The webhook
// is a convenience and never the only guard, so it fails open: the scheduler judges the
// pods that the webhook never saw, and its event says what to write.
//
// The guard (/guard) protects the annotations by which an existing pod holds devices. Only
// the scheduler and the device plugin may change them; otherwise the right to patch pods
// would be the right to take devices from others. The guard fails closed. The scheduler
// writes these annotations with the binding, which is not an update of the pod.
//
// Voiding (/void) is off unless the administrator turns it on (Unasked). It then sees all pods
// that are created and all ephemeral containers, outside of exempt namespaces, and makes
// containers that ask for no device say NVIDIA_VISIBLE_DEVICES=void: an image that says "all"
// would get every device of the node from NVIDIA's runtime. It fails open, since it would stop
// the whole cluster otherwise.
//
// Only pods are handled. The template of a Deployment or a Job is not: its pods are
// completed one by one, and a refusal appears in the events of the ReplicaSet or Job that
// tried to create the pod. Pods in excluded namespaces, mirror pods of the kubelet, and, but for
// voiding, pods that ask for none of the resources or are plainly right cause no call at all
// (the chart, webhook-registration.yaml).
//
// A pod that asks for the resources and names a third scheduler is admitted with a
// warning. That scheduler may be another Volcano of the same cluster, so refusing would be
// wrong; moving the pod would override what somebody wrote on purpose; saying nothing
// would leave a pod waiting for a placement that nobody makes. Admitting it is safe as
// long as it brings no placement: a container without one does not start, and a pod
// without one holds nothing. A pod created while the webhook is down may bring one. This
// project's scheduler overwrites it when it binds the pod; another scheduler does not.
package admission
