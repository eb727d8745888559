/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.h: how much of each device all processes of the container hold together.
 * The file's layout and invariants are in hamicore_abi.h. Thread-safe.
 *
 * Devices are indexes into the limits (number in PCI order). Amounts are bytes.
 */
#ifndef REGION_H
#define REGION_H

#include <stdint.h>

#include "model/limits.h"

/*
 * Joins the region at limits->region, making or repairing the file, and takes a slot
 * in it. When that is impossible, returns -1 with the reason, and nothing is kept:
 * it may be tried again. Until it succeeds region_reserve refuses everything.
 */
int region_attach(const struct limits *limits, char *reason, unsigned long size);

/*
 * Keeps private accounts instead, with the same limits: they bound this process, and not
 * the sum of the container's processes. pre: not attached.
 */
void region_attach_private(const struct limits *limits);

/*
 * Takes `bytes` of a device unless that would exceed `limit` (0 = none). Memory of
 * processes found dead is given back before a refusal. 0, or -1 for refused.
 */
int region_reserve(int device, uint64_t bytes, uint64_t limit);

/* Books bytes the driver has already taken, over the limit if need be: the books stay true. */
void region_force(int device, uint64_t bytes);

/* A number that changes whenever this process has booked more of a device. */
uint64_t region_generation(int device);
/* The driver has been given room that region_reserve did not see. */
void region_bump_generation(int device);

/* Gives bytes of this process back; never more than it holds. */
void region_release(int device, uint64_t bytes);

/* Bytes that all living processes hold. */
uint64_t region_used(int device);

/* What is not data: booked with region_force's consequences, and told apart for monitors. */
enum region_overhead_kind { REGION_CONTEXT, REGION_MODULE, REGION_OVERHEADS };
/* Changes this process's overhead by `bytes`; with `charged` 0 it is shown and not counted. */
void region_add_overhead(int device, enum region_overhead_kind kind, int64_t bytes, int charged);

/* Changes what is told of this process and not counted, by `bytes`. */
void region_add_uncounted(int device, enum vgpu_shown kind, int64_t bytes);

/* 1 when a living process of this process's container has this PID. */
int region_has_process(int pid);

/* What this process holds of a device, overhead not included. */
uint64_t region_own_data(int device);

#define REGION_CONTEXT_TRIES 3
/*
 * Bytes one context takes, as far as the container has learnt it; 0 = not known.
 * *tries: how often it was measured.
 */
uint64_t region_context_bytes(int device, unsigned *tries);
enum region_quality { REGION_DISTURBED, REGION_ALONE, REGION_EXACT };
/*
 * A measurement: an exact one settles it, of the others the smallest holds, from the second on;
 * one that was disturbed is no try.
 */
void region_learn_context(int device, uint64_t bytes, enum region_quality quality);
/* Counts the beginning or the end of a context's making in the container; the count. */
unsigned region_count_context_event(int device);

/* A living process of this process's container and what it holds of a device. */
struct region_process {
	int pid;
	uint64_t bytes;
};
/*
 * Copies up to `room` processes that are on a device; the number there are. Those of other
 * containers that share the region are not among them: their PIDs mean nothing here.
 */
unsigned region_processes(int device, struct region_process *out, unsigned room);

/* 1 when a copy of this library in the process has something of a device. */
int region_has_copy(int device);

/*
 * What a process has does not count while it is in a checkpoint. To count it again takes room on
 * every device, by limits[HAMI_DEVICES]. The PID is one of this process's container.
 */
void region_suspend(int pid);
enum region_resumption { REGION_RESUMED, REGION_NOT_SUSPENDED, REGION_NO_ROOM };
enum region_resumption region_resume(int pid, const uint64_t *limits);

/* For monitors: which device an index is. */
void region_name_device(int device, const char *uuid);

/* In a child after fork: leave the parent's slot alone. The next attach takes an own one. */
void region_after_fork(void);

/* Around a call that takes memory of a device or gives it back: +1 before, -1 when it is booked. */
void region_add_in_flight(int device, int change);
/* 1 when no process of the container is in such a call: then books and card agree. */
int region_is_quiet(int device);

/* A number that this process has and no other process of the region, in any PID namespace. */
uint64_t region_own_process(void);

/* For other parts of the region: its lock, with a slot that is this process's. 0, or -1. */
int region_lock(void);
void region_unlock(void);

/* For tests: 0 when the invariants of hamicore_abi.h hold, else -1. */
int region_check(void);
struct vgpu_region *region_mapping(void);
int region_own_slot(void);

#endif
