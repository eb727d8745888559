/* SPDX-License-Identifier: Apache-2.0 */
/*
 * account.h: reserve, call the driver, commit or cancel: the one way memory is charged. Nothing
 * is taken that was not reserved before, and nothing is released that the driver still holds.
 *
 *	struct charge c;
 *	if (charge_begin(&c, bytes))           // refused: nothing was reserved
 *		return c.refusal;
 *	CUresult r = original(&array, shape);
 *	return charge_end(&c, r, TABLE_ARRAY, handle);
 *
 * Memory that is told apart by its address is charged by blocks.h.
 */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include <stdint.h>

#include "cuda_abi.h"
#include "model/table.h"

struct charge {
	int device;        /* index in the limits; -1: this call is not accounted */
	uint64_t reserved; /* bytes */
	uint64_t context;  /* the memory goes when it does */
	unsigned epoch;    /* overhead_epoch when the call began */
	CUresult refusal;
};

/*
 * Whether a call on the current device is accounted: the device's index; else negative, with
 * c->refusal if refused.
 */
int charge_admit(struct charge *c);
/* Reserves whole pages on an admitted device, after a refresh if need be. Non-zero: refused. */
int charge_reserve(struct charge *c, int device, uint64_t bytes);

/* Reserves whole pages on the current device. Non-zero: refused, with c->refusal. */
int charge_begin(struct charge *c, uint64_t bytes);
/* The same on a device that the call names. */
int charge_begin_on(struct charge *c, CUdevice ordinal, uint64_t bytes);

/*
 * Settles an allocation without an address: keeps what was reserved under its handle, or gives it
 * back.
 */
CUresult charge_end(struct charge *c, CUresult result, enum table_kind kind, uint64_t handle);

/* Tells of bytes that are not counted, until the entry of that kind and key goes. */
void account_add_uncounted(enum table_kind kind, int device, uint64_t key, uint64_t bytes,
			   CUcontext context);
void account_remove_uncounted(const struct table_entry *entry);

/* Reserves bytes of a device, after making room if need be. CUDA_SUCCESS, or OUT_OF_MEMORY. */
CUresult account_reserve(int device, uint64_t bytes);
/* Says once per device that memory was refused. The code to answer with. */
CUresult account_refuse(int device, uint64_t bytes);

#endif
