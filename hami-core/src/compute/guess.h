/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guess.h: what is paid for a launch of which nothing is known, until it has been measured.
 *
 * It is what such launches took lately, and lies in the region: a container of short processes
 * launches nothing else. While one is in flight, the region says twice as much. A process that ends
 * then, and so is never measured, leaves that to the next one.
 *
 * Thread-safe. Nanoseconds.
 */
#ifndef GUESS_H
#define GUESS_H

#include <stdint.h>

uint64_t guess_of(int device);
/* Such a launch is in flight. */
void guess_begin(int device);
/* It has ended, and took so long; 0: it was not measured. */
void guess_end(int device, uint64_t ns);

/* In a child after fork. */
void guess_after_fork(void);

#endif
