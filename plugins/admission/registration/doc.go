// SPDX-License-Identifier: Apache-2.0

// Package registration tells the API server about the webhook: one
// MutatingWebhookConfiguration and one ValidatingWebhookConfiguration, which the
// webhook process writes itself, since only it knows its CA.
//
// The calls are few: only the creation of pods, not in the namespaces of the
// system, and only pods of which a container names one of our resources. The
// last is a CEL condition, which the API server evaluates without a call.
//
// The calls cannot do harm: a failed one is ignored (fail open), one that takes
// longer than Timeout counts as failed, and there are no side effects, so that
// dry runs are answered too.
package registration
