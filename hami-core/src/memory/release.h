/* SPDX-License-Identifier: Apache-2.0 */
/*
 * release.h: memory that goes, one allocation at a time or all of a context at once.
 * It is taken out of the books before the driver's call and credited after it. Thread-safe.
 */
#ifndef RELEASE_H
#define RELEASE_H

#include "cuda_abi.h"
#include "memory/overhead.h"
#include "model/table.h"

/* Around the driver's freeing of an address: begin, call, end with its answer. */
struct address_release {
	int found; /* 0: not ours to account */
	struct table_entry entry;
};
void release_address_begin(struct address_release *f, CUdeviceptr address);
CUresult release_address_end(struct address_release *f, CUresult result);
/* The call succeeded, and perhaps was only recorded into a graph. CUDA_SUCCESS. */
CUresult release_address_doubt(struct address_release *f);

/* Around the driver's destruction of a context: what goes with it. */
struct context_release {
	CUcontext context;
	struct table_entry *gone[5]; /* plain, arrays, modules, imports, overflow */
	struct context_limits *context_limits;
	struct context_removal overhead;
};
void release_context_begin(struct context_release *d, CUcontext context);
CUresult release_context_end(struct context_release *d, CUresult result);

#endif
