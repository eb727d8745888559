/* SPDX-License-Identifier: Apache-2.0 */
/*
 * account.h: reserve, call the driver, commit or cancel: the one way memory is charged.
 *
 *	struct charge c;
 *	if (charge_begin(&c, bytes))           // refused: nothing was reserved
 *		return c.refusal;
 *	CUresult r = original(pointer, bytes);
 *	return charge_end(&c, r, address, bytes);
 */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include <stdint.h>

#include "cuda_abi.h"
#include "table.h"

struct charge {
	int device;        /* index in the limits; -1: this call is not accounted */
	uint64_t reserved; /* bytes */
	uint64_t context;  /* the memory goes when it does */
	CUresult refusal;
};

/* Reserves room for an allocation on the current device. Non-zero: refused, with c->refusal. */
int charge_begin(struct charge *c, uint64_t bytes);
/* The same in whole pages on a device that the call names. */
int charge_begin_on(struct charge *c, CUdevice ordinal, uint64_t bytes);

/*
 * Settles after the driver's answer: keeps what the allocation at `address` takes and gives
 * the rest back. Where it takes more than there is, frees it again and answers OUT_OF_MEMORY.
 */
CUresult charge_end(struct charge *c, CUresult result, CUdeviceptr address, uint64_t bytes);

/* Settles an allocation without an address: keeps what was reserved under its handle, or gives it back. */
CUresult charge_keep(struct charge *c, CUresult result, enum table_kind kind, uint64_t handle);

/* Freeing has the same shape: begin, the driver's call, end with its answer. */
struct freeing {
	int found; /* 0: not ours to account */
	struct table_entry entry;
};
void free_begin(struct freeing *f, CUdeviceptr address);
CUresult free_end(struct freeing *f, CUresult result);

/* Tells of bytes that are not counted, until the entry of that kind and key goes. */
void account_show(enum table_kind kind, int device, uint64_t key, uint64_t bytes, CUcontext context);
void account_shown_gone(const struct table_entry *entry);

/* What a context takes along when it goes: take it, destroy the context, end with the driver's answer. */
struct departing {
	CUcontext context;
	struct table_entry *gone[4]; /* plain, arrays, imports, overflow */
};
void context_leave_begin(struct departing *d, CUcontext context);
CUresult context_leave_end(struct departing *d, CUresult result);

/* The context whose memory a context uses: the primary one for a green context's, itself for all others. */
CUcontext context_owner(CUcontext context);
/* The calling thread's context, or the one whose memory it uses; NULL when there is none. */
CUcontext current_context(void);

/* Reserves bytes of a device; CUDA_SUCCESS, or the code to answer with. Pools are asked to shrink first. */
CUresult account_reserve(int device, uint64_t bytes);
/* The same without asking pools: for their own code. */
int account_reserve_once(int device, uint64_t bytes);
/* What can make room on a device before something is refused: everything is read again. Takes locks of its own: hold none. */
void account_refresh(int device);
/* Says once per device that memory was refused. The code to answer with. */
CUresult account_refuse(int device, uint64_t bytes);

/* Reads again what the pools of this process hold, which shrinks by itself when streams synchronise. */
void pools_refresh(void);
/* An allocation of a pool, taken out of the table, was freed. */
void pool_freed(const struct table_entry *entry);
void pools_after_fork(void);

/* One use less of a physical handle: its memory is credited with the last. */
void handle_drop(uint64_t handle);

/* What is mapped into an array: take it, destroy the array, settle. NULL: nothing. */
struct tile;
struct tile *sparse_take(uint64_t array);
void sparse_settle(struct tile *list, int gone);
void sparse_after_fork(void);

/*
 * Charges what graphs have reserved of a device (by CUDA ordinal): for after a launch of a
 * graph, which is not refused. Over the limit, what no graph uses any more is given back first.
 */
void account_graph_memory(CUdevice ordinal);
/* The same for every device where graphs have held memory, and for the current one. */
void graph_memory_refresh(void);
void graph_memory_after_fork(void);

/* In a child after fork. */
void account_after_fork(void);

#endif
