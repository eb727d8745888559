/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mappings.h: where physical memory is mapped: a binary tree by address that is a heap by a hash of
 * it, so that a range is cut out of it in a time that depends on the mappings in the range, and not
 * on its size. Plain data, without a lock; mappings in one tree do not overlap.
 */
#ifndef MAPPINGS_H
#define MAPPINGS_H

#include <stdint.h>

struct physical;
struct mapping {
	uint64_t at, bytes;
	struct physical *of;
	struct mapping *left, *right;
};

/* pre: nothing is at the address. */
void mapping_put(struct mapping **tree, struct mapping *m);
/* Takes out the mapping that begins at an address. NULL: none. */
struct mapping *mapping_take_at(struct mapping **tree, uint64_t at);
int mapping_is_at(const struct mapping *tree, uint64_t at);
/* Takes out all mappings that lie in a range in whole or in part, as a tree. */
struct mapping *mapping_take_range(struct mapping **tree, uint64_t from, uint64_t to);
/* Takes a tree apart, one by one. NULL: it is empty. */
struct mapping *mapping_take_root(struct mapping **tree);

#endif
