/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heartbeat.h: looks whether the device works for others while work of ours is queued there. It
 * records an event on a stream of its own again and again, and notes when each is passed
 * (preempt.h).
 */
#ifndef HEARTBEAT_H
#define HEARTBEAT_H

#include "compute/spans.h"

/*
 * Looks once; the context has to be current. Takes two calls of the driver, waits for
 * nothing. Thread-safe.
 */
void heartbeat_poll(struct compute_context *p);

/* How often others were found on the device; one is counted that a mark waits for now. */
uint64_t heartbeat_count_preemptions(struct compute_context *p, uint64_t now_ns);

#endif
