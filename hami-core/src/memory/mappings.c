/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/mappings.h"

#include <stddef.h>

static uint64_t heap_priority(const struct mapping *m)
{
	uint64_t h = m->at * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 32;
}

/* Parts a tree into what begins below an address and the rest. */
static void split_tree(struct mapping *t, uint64_t at, struct mapping **below,
		       struct mapping **rest)
{
	while (t)
		if (t->at < at) {
			*below = t;
			below = &t->right;
			t = t->right;
		} else {
			*rest = t;
			rest = &t->left;
			t = t->left;
		}
	*below = *rest = NULL;
}

/* Joins two trees; all of `a` lies below all of `b`. */
static struct mapping *join_trees(struct mapping *a, struct mapping *b)
{
	struct mapping *root = NULL, **to = &root;
	while (a && b)
		if (heap_priority(a) > heap_priority(b)) {
			*to = a;
			to = &a->right;
			a = a->right;
		} else {
			*to = b;
			to = &b->left;
			b = b->left;
		}
	*to = a ? a : b;
	return root;
}

void mapping_put(struct mapping **tree, struct mapping *m)
{
	struct mapping *below, *above;
	split_tree(*tree, m->at, &below, &above);
	m->left = m->right = NULL;
	*tree = join_trees(join_trees(below, m), above);
}

struct mapping *mapping_take_at(struct mapping **tree, uint64_t at)
{
	struct mapping *below, *found, *above;
	split_tree(*tree, at, &below, &above);
	split_tree(above, at + 1, &found, &above);
	*tree = join_trees(below, above);
	return found;
}

int mapping_is_at(const struct mapping *tree, uint64_t at)
{
	while (tree && tree->at != at)
		tree = tree->at < at ? tree->right : tree->left;
	return tree != NULL;
}

/* The last mapping that begins below an address. */
static const struct mapping *find_before(const struct mapping *tree, uint64_t at)
{
	const struct mapping *found = NULL;
	while (tree) {
		found = tree->at < at ? tree : found;
		tree = tree->at < at ? tree->right : tree->left;
	}
	return found;
}

struct mapping *mapping_take_range(struct mapping **tree, uint64_t from, uint64_t to)
{
	struct mapping *below, *within, *above;
	const struct mapping *before = find_before(*tree, from);
	uint64_t first = before && before->at + before->bytes > from ? before->at : from;
	split_tree(*tree, first, &below, &above);
	split_tree(above, to, &within, &above);
	*tree = join_trees(below, above);
	return within;
}

struct mapping *mapping_take_root(struct mapping **tree)
{
	struct mapping *m = *tree; /* not by going down: a tree's depth is not bounded by much */
	if (m)
		*tree = join_trees(m->left, m->right);
	return m;
}
