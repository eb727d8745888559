/* SPDX-License-Identifier: Apache-2.0 */
/*
 * marks.h: looks whether the device works for others while work of ours is queued there. It records
 * an event on a stream of its own again and again, and notes when each is passed (preempt.h).
 */
#ifndef MARKS_H
#define MARKS_H

#include "compute/spans.h"

/*
 * Looks once; the place's context has to be current. Takes two calls of the driver, waits for
 * nothing. Thread-safe.
 */
void marks_look(struct place *p);

/* How often others were found on the device; one is counted that a mark waits for now. */
uint64_t marks_others(struct place *p, uint64_t now_ns);

#endif
