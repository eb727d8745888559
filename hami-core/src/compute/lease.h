/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.h: the processes of one container work on a device one after the other and not side by
 * side. A process keeps the lease for some milliseconds while it keeps the device busy; then the
 * one that has waited longest gets it.
 *
 * Side by side, each would be measured with the others' time slices, and each change from one to
 * the other would cost time. The lease is a hint, not a lock: a holder that is silent or dead loses
 * it within milliseconds, and nobody waits for it longer.
 */
#ifndef LEASE_H
#define LEASE_H

#include <stdint.h>

#include "compute/spans.h"

/*
 * How long to wait before this process may launch; 0: it has the lease. `f`: its work on the
 * device.
 * Thread-safe.
 */
uint64_t lease_wait(int device, const struct work_in_flight *f, uint64_t now_ns);

/* The holder launches: its work on the device ends then, by estimate, or by a guess. */
void lease_extend(int device, uint64_t until_ns, int unknown, uint64_t now_ns);

/*
 * The container has to wait anyway: a good moment to give the lease back, if this process has had
 * it for a while.
 */
void lease_yield(int device, const struct work_in_flight *f, uint64_t now_ns);

/* This process has waited for its work: what is left of it ends then. */
void lease_shorten(int device, uint64_t until_ns);

/* When the container's work on the device ends, by estimate; 0: not known. */
uint64_t lease_until(int device, uint64_t now_ns);

/* In a child after fork. */
void lease_after_fork(void);

#endif
