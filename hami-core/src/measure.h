/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.h: what NVML can tell about this process's memory on a device, if it can. NVML
 * is initialised on the first question and stays so. Devices are indexes into the limits.
 * Thread-safe; bytes.
 */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdint.h>

/*
 * Bytes this very process has there, by its PID. 1, or 0 when NVML does not list it: not
 * there yet, or named by a PID of another namespace, or without an amount.
 */
int measure_own(int device, uint64_t *bytes);

/* NVML was found to mean another process by this one's PID, with `bytes`: measure_own knows nothing from now on. Told once. */
void measure_not_ours(int device, uint64_t bytes);

/* Free bytes of the card. 1, or 0 when NVML does not say. */
int measure_free(int device, uint64_t *bytes);

/* In a child after fork. */
void measure_after_fork(void);

#endif
