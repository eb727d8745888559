/* SPDX-License-Identifier: Apache-2.0 */
/*
 * borrow.h: how much of a device the container may use beyond its own share while its neighbours on
 * the node leave it idle, without anybody who watches over them.
 *
 * It believes a neighbour (neighbours.h) only to that one's disadvantage: who hides its demand is
 * taken for idle, and a lie in the other direction makes others borrow less. What cannot be read
 * counts as a neighbour who wants all it is entitled to; a container has its own share whatever the
 * files say, and stops borrowing while a neighbour says that it lacks.
 */
#ifndef BORROW_H
#define BORROW_H

#include <stdint.h>

/*
 * Percent of the device that the container may use now, `percent` at least. Also tells the
 * neighbours that it wants to. Cheap but for once in 20 ms. Thread-safe. pre: gate is LIMITED,
 * percent is below 100.
 */
unsigned borrow_rate(int device, unsigned percent, uint64_t now_ns);

/*
 * Whether a neighbour wants the device, too, and we want all that we are entitled to and have it,
 * as of the last look: then there is a line to stand in, see turn_queue.h.
 */
int borrow_is_contended(int device);

/* In a child after fork. */
void borrow_after_fork(void);

#endif
