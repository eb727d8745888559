// SPDX-License-Identifier: Apache-2.0

// Package schedulerconf stands between the file that --scheduler-conf names and Volcano's
// scheduler.
//
// Volcano goes by built-in tiers, in which plugin deviceshare is not, when it cannot read the file
// at its start: pods with devices are then bound by sums, without a placement, and no word of it
// but a line in the log. So Volcano gets a copy, which holds nothing but what it can go by:
//
//	file of people ──► Read ──► no mistakes ──► copy ──► Volcano
//	                     │
//	                     └── mistakes: at the start the program ends with them; later the copy stays
//	                         as it is, and log, metric and an event of the ConfigMap say why
//
// What people write otherwise but mean clearly is put right in the copy: actions in capitals, a
// comma too many.
package schedulerconf
