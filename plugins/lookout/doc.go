// SPDX-License-Identifier: Apache-2.0

// Package lookout keeps a scheduler from working while another one takes the same pods. Package
// rivals of the domain decides who that is; this package asks the cluster, tells people, and starts
// and ends the work.
//
// The scheduler that leads keeps its lease while it waits, so that one process looks and tells.
// Volcano's scheduler cannot be paused. When another scheduler comes during the work, the process
// ends in order. The next leader waits before it begins.
package lookout
