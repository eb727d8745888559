/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sparse.h: physical memory that is mapped into sparse arrays. The driver keeps it until it is
 * unmapped or the array goes, so each piece mapped is one use of its handle. Thread-safe.
 */
#ifndef SPARSE_H
#define SPARSE_H

#include <stdint.h>

#include "cuda_abi.h"

struct tile;

/*
 * Around the driver's mapping of a list: takes the uses, and books or drops them. NULL: no memory
 * to do so.
 */
struct tile **sparse_map_begin(const CUarrayMapInfo *list, unsigned int count);
CUresult sparse_map_end(struct tile **made, const CUarrayMapInfo *list, unsigned int count,
			CUresult result);

/* What is mapped into an array: take it, destroy the array, settle. NULL: nothing. */
struct tile *sparse_take(uint64_t array);
void sparse_settle(struct tile *list, int gone);

/* In a child after fork. */
void sparse_after_fork(void);

#endif
