/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handles.h: physical memory (cuMemCreate) and its mappings. It is charged until its last reference
 * and its last use are gone, in whatever order, as the driver keeps it. A call that may keep the
 * memory alive holds it before the driver is asked, so that no other thread's call credits it
 * meanwhile. Thread-safe.
 */
#ifndef HANDLES_H
#define HANDLES_H

#include <stdint.h>

#include "cuda_abi.h"
#include "memory/account.h"

struct physical;

/* Settles the driver's making of physical memory, for which was reserved. */
CUresult handle_create_end(struct charge *c, CUresult result, uint64_t handle);

/* One use more of the memory that a handle stands for; NULL when it is not known. */
struct physical *handle_hold(uint64_t handle);
/* One use less: the memory is credited with the last. */
void handle_let_go(struct physical *p);

/* Around the driver's release of a reference. */
struct physical *handle_release_begin(uint64_t handle);
CUresult handle_release_end(struct physical *p, CUresult result);

/* Around the driver's looking up of a handle by an address, which takes a reference. */
struct handle_retain {
	uint64_t address;
	struct handle_retain *next;
};
void handle_retain_begin(struct handle_retain *c, uint64_t address);
CUresult handle_retain_end(struct handle_retain *c, CUresult result,
			   const CUmemGenericAllocationHandle *handle);

/*
 * A handle came from a shareable one: another process pays for it, or it is one of our own again.
 */
void handle_imported(uint64_t handle);

/* Memory that is held was mapped at an address, or was not. */
CUresult handle_map_end(struct physical *p, CUresult result, uint64_t address, uint64_t bytes);

/* Around the driver's unmapping of a range: what of ours it touches. */
struct unmapping {
	uint64_t from, to;
	struct mapping *touched; /* NULL: nothing */
};
void handles_unmap_begin(struct unmapping *u, uint64_t address, uint64_t bytes);
CUresult handles_unmap_end(struct unmapping *u, CUresult result);

/* In a child after fork. */
void handles_after_fork(void);

#endif
