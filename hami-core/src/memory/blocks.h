/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.h: the charge of plain, managed and pitched memory, exact to the page: every page that the
 * driver gives this process is paid for before it is taken and until it has gone. Thread-safe.
 *
 *	struct block_charge c;
 *	if (block_alloc_begin(&c, PAGES_PLAIN, bytes)) // refused: nothing was reserved
 *		return c.charge.refusal;
 *	CUresult r = original(pointer, bytes);
 *	return block_alloc_end(&c, r, address, bytes); // must follow: begin may hold a mutex
 */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "memory/account.h"
#include "model/pages.h"

struct block_charge {
	struct charge charge;
	struct packing packing;
	/* the page that the block fits into, for which nothing was reserved; 0: reserved */
	uint64_t page;
	int serial; /* the mutex of small blocks is held */
};

/* Reserves room for a block on the current device. Non-zero: refused, with c->charge.refusal. */
int block_alloc_begin(struct block_charge *c, enum pages_kind kind, uint64_t bytes);

/*
 * Settles after the driver's answer: keeps what the block at `address` takes and gives the rest
 * back. A driver that takes more than was foreseen gets the block back where there is no room for
 * that.
 */
CUresult block_alloc_end(struct block_charge *c, CUresult result, CUdeviceptr address,
			 uint64_t bytes);

/*
 * Freeing: take it, call the driver, then say whether it is gone or stays. Taking gives 1 when it
 * is ours.
 */
int block_free_begin(CUdeviceptr address, struct table_entry *out);
void block_free_end(const struct table_entry *block);
void block_free_cancel(const struct table_entry *block);

/* Whether the driver still has a block, or does not say. */
int block_is_there(const struct table_entry *block);
/* Credits a block that is in the books and not with the driver: it went with its context. */
void block_drop_if_gone(const struct table_entry *block);

/* All blocks of a context at once, as a list to be settled one by one and freed. */
struct table_entry *block_free_all_begin(uint64_t context);
/* A context has gone: so have blocks that other threads booked while it went. */
void blocks_drop_gone(uint64_t context);

/* In a child after fork. */
void blocks_after_fork(void);

#endif
