// SPDX-License-Identifier: Apache-2.0

// Package registration says for what the API server calls the webhook: one
// MutatingWebhookConfiguration and one ValidatingWebhookConfiguration. In a cluster the chart
// creates them, so that removing the chart removes them, and a Job adds the CA, which only it
// knows (Fill). A webhook outside of the cluster writes them whole (Apply). The rules have one
// home, Registration: a test holds the chart's objects equal to it.
//
// The API server calls the webhook for two things only: when a pod is created of which a
// container names an extended resource and which is not plainly right, and when anybody but the
// permitted writers changes an annotation by which a pod holds devices. Pods in system namespaces
// are excluded. The API server evaluates these CEL conditions without a call, so pods that lack
// nothing and ordinary updates of pods never wait. The conditions are wider than the rule of
// package podspec: a pod with a resource of somebody else causes a call, and the webhook then finds
// that it does not ask.
//
// Failed calls do no harm. At creation a failed call is ignored (fail open). At an update
// it refuses the update (fail closed), which would be refused anyway. A call that takes
// longer than Timeout counts as failed. There are no side effects, so dry runs are
// answered too.
package registration
