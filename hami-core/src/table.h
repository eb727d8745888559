/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h: what this process has allocated, and which pages that takes. Plain data;
 * thread-safe; never calls the driver or the region.
 *
 * The page rule: an allocation takes every page of PAGE_BYTES that it touches; a page
 * touched by several allocations is taken once. Only the first and the last page of
 * an allocation can be shared, so only those are counted one by one.
 */
#ifndef TABLE_H
#define TABLE_H

#include <stdint.h>

enum table_kind {
	TABLE_PLAIN,   /* by address: pages */
	TABLE_POOLED,  /* by address: its pool is charged, not it */
	TABLE_HANDLE,  /* by handle: a physical allocation (cuMemCreate) */
	TABLE_MAPPING, /* by address: where a handle is mapped */
	TABLE_ARRAY,   /* by handle */
	TABLE_CONTEXT, /* by handle: one that is charged for */
	TABLE_GREEN,   /* by handle: a green context, whose device is CUDA's number for it */
	TABLE_GREEN_CONTEXT, /* by handle: the context that a green one is used by */
	TABLE_IMPORT,  /* by address or handle: another process's, told and not counted */
	TABLE_OVERFLOW, /* by address: plain memory that the host gave, beside its TABLE_PLAIN */
	TABLE_KINDS
};

struct table_entry {
	enum table_kind kind;
	int device;      /* index in the limits */
	uint64_t key;    /* address or handle */
	uint64_t size;
	uint64_t link;   /* plain, array, import, overflow: the context; mapping: the handle; pooled: wrap_pool.c's record;
			    green: its context; a green one's context: the primary one */
	uint32_t uses;   /* handle: references + mappings; import: how often it is open; context: how often it is attached */
	struct table_entry *next;
};

/* Adds a plain allocation. Bytes of pages that nothing of ours had touched, or UINT64_MAX without memory. */
uint64_t table_add_plain(int device, uint64_t address, uint64_t size, uint64_t context);

/* Adds an entry of another kind. -1 without memory. */
int table_add(const struct table_entry *entry);

/*
 * Takes an entry out; 1 when there was one. Freeing has two halves, since the driver
 * may refuse in between: take, call the driver, then table_free_pages (or put back).
 */
int table_take(enum table_kind kind, uint64_t key, struct table_entry *out);
/* Bytes of pages that no allocation touches any more. pre: `entry` is plain and taken. */
uint64_t table_free_pages(const struct table_entry *entry);
/* pre: `entry` was taken. */
void table_put_back(const struct table_entry *entry);

/* Takes all entries of a kind with this link out, as a list that the caller frees one by one. */
struct table_entry *table_take_linked(enum table_kind kind, uint64_t link);

/* Copies an entry; 1 when there is one. */
int table_get(enum table_kind kind, uint64_t key, struct table_entry *out);

/* Adds to an entry's uses; the uses afterwards, or -1 when there is no entry. An entry without uses is taken out into *out. */
long table_use(enum table_kind kind, uint64_t key, int change, struct table_entry *out);

/* 1 when some page of the device is only partly used, so that a small allocation may cost nothing. */
int table_has_partial_page(int device);

/* Forgets everything (a child after fork: the memory is the parent's). The entries themselves are left to leak. */
void table_reset(void);

#endif
