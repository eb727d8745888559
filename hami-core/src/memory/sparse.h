/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sparse.h: physical memory that is mapped into sparse arrays. The driver keeps it until it is
 * unmapped or the array goes, so each piece mapped is one use of it. Thread-safe.
 */
#ifndef SPARSE_H
#define SPARSE_H

#include <stdint.h>

#include "cuda_abi.h"

struct tile;

/* Around the driver's mapping of a list: takes the uses before it. */
struct sparse_call {
	const CUarrayMapInfo *list;
	unsigned int count;
	struct tile **made; /* for each entry; NULL: it maps nothing of ours */
	uint64_t number;
	struct sparse_call *next;
};
/* -1: no memory for it, and nothing more is to be done. */
int sparse_map_begin(struct sparse_call *c, const CUarrayMapInfo *list, unsigned int count);
/* The driver has carried out so many entries of the list, and no others. */
void sparse_map_end(struct sparse_call *c, unsigned int done);

/* Around the driver's destruction of an array, with what is mapped into it. */
struct sparse_destruction {
	uint64_t array, number;
	struct tile *tiles;
};
void sparse_destroy_begin(struct sparse_destruction *d, uint64_t array);
void sparse_destroy_end(struct sparse_destruction *d, int gone);
/* An array went with its context. */
void sparse_array_gone(uint64_t array);

/* In a child after fork. */
void sparse_after_fork(void);

#endif
