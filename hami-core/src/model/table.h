/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h: what this process has allocated, by address or by handle. Which pages that takes
 * is pages.h's. Plain data; thread-safe; never calls the driver or the region.
 */
#ifndef TABLE_H
#define TABLE_H

#include <stdint.h>

enum table_kind {
	TABLE_PLAIN,   /* by address: pages (pages.h) */
	TABLE_POOLED,  /* by address: its pool is charged, not it */
	TABLE_HANDLE,  /* by handle: a physical allocation (cuMemCreate) */
	TABLE_ARRAY,   /* by handle */
	TABLE_MODULE,  /* by handle of a module or library: the arrays in it */
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
	/*
	 * plain, array, module, import, overflow: the context; pooled: the pool's
	 * record; green: its context; a green one's context: the primary one
	 */
	uint64_t link;
	/*
	 * handle: references + mappings; import: how often it is open; context: how often attached
	 */
	uint32_t uses;
	struct table_entry *next;
};

/*
 * Adds an entry. 1 when one of this kind and key was there, which is copied to *old, else 0; -1
 * without memory.
 */
int table_replace(const struct table_entry *entry, struct table_entry *old);
/* The same without a look at the old one. 0; -1 without memory. */
int table_add(const struct table_entry *entry);

/*
 * Takes an entry out; 1 when there was one. Freeing has two halves, since the driver
 * may refuse in between: take, call the driver, then settle it or put it back.
 */
int table_take(enum table_kind kind, uint64_t key, struct table_entry *out);
/*
 * pre: `entry` was taken. 1 when another has its key, which stays: the driver has given the address
 * or handle again, so what the entry stood for is gone.
 */
int table_put_back(const struct table_entry *entry);

/* Takes all entries of a kind with this link out, as a list that the caller frees one by one. */
struct table_entry *table_take_linked(enum table_kind kind, uint64_t link);

/* Copies all entries of a kind with this link, as a list that the caller frees one by one. */
struct table_entry *table_copy_linked(enum table_kind kind, uint64_t link);

/* Copies an entry; 1 when there is one. */
int table_get(enum table_kind kind, uint64_t key, struct table_entry *out);

/*
 * Adds to an entry's uses; the uses afterwards, or -1 when there is no entry. An entry without
 * uses is taken out into *out.
 */
long table_use(enum table_kind kind, uint64_t key, int change, struct table_entry *out);

/*
 * Forgets everything (a child after fork: the memory is the parent's). The entries themselves are
 * left to leak.
 */
void table_reset(void);

#endif
