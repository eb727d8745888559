/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn_queue.h: containers that keep one device busy take turns at it instead of mixing their work.
 *
 * A card that two processes want changes from one to the other every 2 ms or so, and each change
 * costs time that nobody has: two containers at 30 and 70 % of an H200 had 90 to 95 % of it
 * together, and the larger one, which the smaller one meets for most of its time, was short of 6 to
 * 11 points. So neighbours (neighbours.h) stand in line: who is in it longest works for up to its
 * percentage of FRAME_NS, with nobody beside it.
 *
 * Standing in line is a favour, with bounds: for a neighbour nobody waits longer than that one's
 * percentage of the time and 2 points, which the changes between the two take, so that everybody
 * has nearly its own percentage to itself. Who wants much less than its own (a program with little
 * to do, that wants it soon) does not wait at all; nor does who lacks (borrow.h).
 */
#ifndef TURN_QUEUE_H
#define TURN_QUEUE_H

#include <stdint.h>

#include "compute/spans.h"

/*
 * How long to wait before more is launched; 0: go on. `balance`: of the container; `f`: this
 * process's work on the device; `cost`: of what is to come. Does nothing without neighbours that
 * want the device.
 */
uint64_t turn_queue_wait(int device, unsigned percent, int64_t balance,
			 const struct work_in_flight *f, uint64_t cost, uint64_t now_ns);

#endif
