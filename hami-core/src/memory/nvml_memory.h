/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml_memory.h: what NVML can tell about this process's memory on a device, if it can, and whether
 * that is of one moment with the books. NVML is initialised on the first question and stays so.
 * Devices are indexes into the limits. Thread-safe; bytes.
 */
#ifndef NVML_MEMORY_H
#define NVML_MEMORY_H

#include <stdint.h>

/*
 * Bytes this very process has there, by its PID. 1, or 0 when NVML does not list it: not
 * there yet, or named by a PID of another namespace, or without an amount.
 */
int nvml_memory_of_process(int device, uint64_t *bytes);

/*
 * The same beside the books. What is booked is never less than what the driver has given, so
 * without growth `own` less `data` is at most what this process has beyond its data; when still, it
 * is just that.
 */
struct nvml_memory_reading {
	int listed;         /* nvml_memory_of_process's answer */
	uint64_t own, data; /* data: what is booked for it */
	int grew;           /* a thread has booked more between the two readings */
	int still;          /* the books did not change, and nobody was about to */
};
void nvml_memory_read(int device, struct nvml_memory_reading *r);

/*
 * NVML was found to mean another process by this one's PID, with `bytes`: nvml_memory_of_process
 * knows nothing from now on. Told once.
 */
void nvml_memory_distrust_pid(int device, uint64_t bytes);

/* Free bytes of the card. 1, or 0 when NVML does not say. */
int nvml_memory_card_free(int device, uint64_t *bytes);

/* In a child after fork. */
void nvml_memory_after_fork(void);

#endif
