// SPDX-License-Identifier: Apache-2.0

// Package registration registers the webhook with the API server: one
// MutatingWebhookConfiguration and one ValidatingWebhookConfiguration. The webhook process
// writes them itself, since only it knows its CA.
//
// The API server calls the webhook for two things only: when a pod is created of which a
// container names one of the resources, and when anybody but the permitted writers changes
// an annotation by which a pod holds devices. Pods in system namespaces are excluded. The
// API server evaluates these CEL conditions without a call, so ordinary updates of pods
// never wait. The conditions are wider than the rule of package podspec: an amount of zero
// causes a call, and the webhook then finds that the pod does not ask.
//
// Failed calls do no harm. At creation a failed call is ignored (fail open). At an update
// it refuses the update (fail closed), which would be refused anyway. A call that takes
// longer than Timeout counts as failed. There are no side effects, so dry runs are
// answered too.
package registration
