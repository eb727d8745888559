/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handles.h: physical handles and their mappings. A handle's memory is charged until its last
 * reference and its last mapping are gone, in whatever order, as the driver keeps it. Thread-safe.
 */
#ifndef HANDLES_H
#define HANDLES_H

#include <stdint.h>

#include "cuda_abi.h"
#include "model/table.h"

/* One use more of a handle; 1 when it is known. */
int handle_use(uint64_t handle);
/* One use less: its memory is credited with the last. */
void handle_drop(uint64_t handle);

/* Around the driver's release of a reference: the driver may give the number again at once. */
struct handle_release {
	uint64_t handle;
	long uses; /* left; -1: a handle that is not known */
	struct table_entry entry;
};
void handle_release_begin(struct handle_release *r, uint64_t handle);
CUresult handle_release_end(struct handle_release *r, CUresult result);

/*
 * A handle came from a shareable one: another process pays for it, or it is one of our own again.
 */
void handle_imported(uint64_t handle);

/* A known handle, of which a use was taken, is mapped at an address. */
void handle_mapped(uint64_t handle, uint64_t address, uint64_t bytes);
/*
 * Around the driver's unmapping of a range: what of ours lies in it, whatever lies between. NULL:
 * nothing.
 */
struct mapping;
struct mapping *handles_unmap_begin(uint64_t address, uint64_t bytes);
CUresult handles_unmap_end(struct mapping *list, CUresult result);

/* In a child after fork. */
void handles_after_fork(void);

#endif
