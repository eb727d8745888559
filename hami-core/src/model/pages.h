/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.h: the pages that allocations of this process may share, and whether this process pays
 * for each. It also predicts where the driver puts the next small block. Plain data; thread-safe;
 * never calls the driver or the region.
 *
 * The page rule: an allocation takes every page of PAGE_BYTES that it touches, and a page that
 * several allocations touch is taken once. Only the first and the last page of an allocation can
 * be shared, so only these are counted one by one. A page is paid for or not; whoever comes into
 * one that is not owes it, and the last to leave one that is gets it credited.
 */
#ifndef PAGES_H
#define PAGES_H

#include <stdint.h>

/* Small blocks share pages with those of the same device, context and kind, and with no others. */
enum pages_kind {
	PAGES_PLAIN,
	PAGES_MANAGED,
	PAGES_UNKNOWN /* the driver's packing is not known: nothing is predicted */
};
struct packing {
	int device;
	enum pages_kind kind;
	uint64_t context;
};

/*
 * An allocation is there. Bytes of its pages that nobody pays for yet; up to `budget` they are
 * paid for from now on, beyond it none is. UINT64_MAX without memory: then nothing is noted.
 * `by`: how a small block was packed; NULL for memory with pages of its own.
 */
uint64_t pages_add(const struct packing *by, uint64_t at, uint64_t size, uint64_t budget);
/* Bytes of the pages that are wholly an allocation's. */
uint64_t pages_exclusive_bytes(uint64_t at, uint64_t size);
/* All pages of an allocation are paid for from now on. */
void pages_pay(uint64_t at, uint64_t size);

/*
 * Freeing has two halves, since the driver may refuse: mark the allocation as leaving, call the
 * driver, then pages_free_end, or pages_free_cancel if it is still there.
 */
void pages_free_begin(uint64_t at, uint64_t size);
/* Bytes of pages that no allocation touches any more and that were paid for. */
uint64_t pages_free_end(uint64_t at, uint64_t size);
/*
 * The same for a block in one page, if others are still in it; 0: it is the last, nothing was
 * done.
 */
int pages_try_leave_shared(uint64_t at, uint64_t size);
/* Bytes of pages whose charge has moved elsewhere meanwhile: they are paid for from now on. */
uint64_t pages_free_cancel(uint64_t at, uint64_t size);

/*
 * The page into which the driver certainly puts the next small block of this size, if this
 * process pays for it. 0: it may need a new page.
 */
uint64_t pages_find_room(const struct packing *by, uint64_t size);
/*
 * A small block was to go into page `from` and opened a page of its own, which nobody pays for.
 * Where all that was in `from` is leaving, the driver has dropped that page: its charge moves. 1 if
 * so.
 */
int pages_move_charge(uint64_t from, uint64_t at, uint64_t size);

/* A context has gone: nothing is predicted from its pages. */
void pages_forget_context(uint64_t context);

/* In a child after fork: the memory is the parent's. What is forgotten is left to leak. */
void pages_reset(void);

#endif
