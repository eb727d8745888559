/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.h: what NVML can tell about this process's memory on a device, if it can, and whether
 * that is of one moment with the books. NVML is initialised on the first question and stays so.
 * Devices are indexes into the limits. Thread-safe; bytes.
 */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdint.h>

/*
 * Bytes this very process has there, by its PID. 1, or 0 when NVML does not list it: not
 * there yet, or named by a PID of another namespace, or without an amount.
 */
int measure_own(int device, uint64_t *bytes);

/*
 * The same beside the books. What is booked is never less than what the driver has given, so
 * without growth `own` less `data` is at most what this process has beyond its data; when still, it
 * is just that.
 */
struct measure_reading {
	int listed;         /* measure_own's answer */
	uint64_t own, data; /* data: what is booked for it */
	int grew;           /* a thread has booked more between the two readings */
	int still;          /* the books did not change, and nobody was about to */
};
void measure_read(int device, struct measure_reading *r);

/*
 * NVML was found to mean another process by this one's PID, with `bytes`: measure_own knows
 * nothing from now on. Told once.
 */
void measure_not_ours(int device, uint64_t bytes);

/* Free bytes of the card. 1, or 0 when NVML does not say. */
int measure_free(int device, uint64_t *bytes);

/* In a child after fork. */
void measure_after_fork(void);

#endif
