/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.h: what this process is in the region, and the region's slots. What this process holds
 * is in `membership` and true whatever the file says; what others hold is read from the file
 * and never more than LIMIT_MOST each.
 *
 * All of it runs under the process's own mutex and the region's lock: see region.c.
 */
#ifndef SLOTS_H
#define SLOTS_H

#include "hamicore_abi.h"
#include "shm/region.h"

extern struct membership {
	struct vgpu_region *map; /* NULL before region_attach */
	int fd;                  /* -1: the file is gone, or never was: nobody can be probed */
	int slot;
	uint32_t me;                /* as a holder of the lock */
	uint64_t identity;          /* of this process */
	unsigned long long file[2]; /* what fd was opened on */
	uint64_t mine[HAMI_DEVICES];
	uint64_t overhead[REGION_OVERHEADS][HAMI_DEVICES];
	uint64_t counted[HAMI_DEVICES]; /* the part of the overhead that is in `mine` */
	uint64_t shown[VGPU_SHOWN][HAMI_DEVICES];
	const char *path;
} membership;

/* Numbers of slots that may be in use are below it. */
int slots_high_water(void);
/* Whether a slot says that it is in use. */
int slots_is_live(int slot);
/* Whether a slot is in use by the process that has this PID in this process's PID namespace. */
int slots_is_of(int slot, int pid);
/* Whether what a slot has counts: it is in use, and its memory is on the device. */
int slots_counts(int slot);
/* Whether the memory of this process is said to be in a checkpoint. */
int slots_own_is_suspended(void);
/* Whether others find this process's slot. */
int slots_own_is_visible(void);

/* Sets what this process holds of a device, in its slot and in the mirror. */
void slots_write_used(int device, uint64_t bytes);
/* Writes all again that the file says of this process. */
void slots_write_own(void);

/* Restores I1. */
void slots_recount(void);
/* Frees the slots of dead processes. */
void slots_reap(void);
/* Takes a slot that no living process has. -1 when there is none. */
int slots_claim(void);

/* Whether somebody who lives can hold the lock under this number. */
int slots_may_hold(uint32_t owner);
/* 1 when the descriptor is still of the region's file. */
int slots_fd_is_ours(void);

#endif
