// SPDX-License-Identifier: Apache-2.0

// Package registration tells the API server about the webhook: one
// MutatingWebhookConfiguration and one ValidatingWebhookConfiguration, which the
// webhook process writes itself, since only it knows its CA.
//
// The calls are few: the creation of pods of which a container names one of our
// resources, and the updates that change an annotation by which a pod holds devices,
// by anybody but the users who write them; neither in the namespaces of the system.
// These are CEL conditions, which the API server evaluates without a call, so
// ordinary updates of pods never wait for us.
//
// The calls cannot do harm. At creation a failed one is ignored (fail open). At an
// update a failed one refuses the update (fail closed), which is one that would be
// refused anyway. One that takes longer than Timeout counts as failed, and there are
// no side effects, so that dry runs are answered too.
package registration
