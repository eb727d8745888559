/* SPDX-License-Identifier: Apache-2.0 */
/*
 * neighbours.h: the files by which containers of a node tell each other of the devices they share.
 *
 * The word `borrow <directory>/<name>` of the limits file names two files of this container,
 * between those of its neighbours:
 *
 *	<name>.share   what it is entitled to, in the grammar of the limits file; the node writes
 *	               it, all read it
 *	<name>.demand  a struct vgpu_demand per device; the container writes it, all read it
 *
 * A container writes its own .demand and nothing else: the directory is read-only to it. Nothing is
 * mapped: who shortens a file under a mapping kills its reader. No descriptor is kept: a program
 * may close it and open its own there. The container's own file is kept open for writing all the
 * same (prim_keep_writable): a neighbour's root user is the files' owner, too, may lease them, and
 * a lease on a file that nobody writes silences its writer.
 */
#ifndef NEIGHBOURS_H
#define NEIGHBOURS_H

#include <stdint.h>

#include "hamicore_abi.h"
#include "model/pace.h"

#define NEIGHBOURS VGPU_NEIGHBOURS

struct neighbour {
	char name[80];
	/* by our number of the device; percent 0: none of it */
	struct pace_claim claim[HAMI_DEVICES];
	int number[HAMI_DEVICES];              /* theirs */
	struct vgpu_patience *patience[HAMI_DEVICES]; /* the container's with it; NULL: none left */
};

/*
 * Takes the files for this thread. 0 when another thread has them: go without. What is below needs
 * them.
 */
int neighbours_try_lock(void);
void neighbours_unlock(void);

/*
 * Looks who there is, where that may have changed. The number; -1 when one of them cannot be read.
 */
int neighbours_scan(uint64_t now_ns);
struct neighbour *neighbours_at(int i);

/* What one says of our device. 0, or -1 when that cannot be read. pre: it has a share of it. */
int neighbours_read_demand(const struct neighbour *n, int device, struct vgpu_demand *out);

/*
 * What the container says of a device, which lies in its region: several processes say it. Change
 * it, then tell.
 */
struct vgpu_demand *neighbours_own_demand(int device);
void neighbours_publish_demand(int device);

/* In a child after fork. */
void neighbours_after_fork(void);

#endif
