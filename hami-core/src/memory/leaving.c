/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/leaving.h"

#include <stdlib.h>

#include "memory/account.h"
#include "memory/aside.h"
#include "memory/blocks.h"
#include "memory/overflow.h"
#include "memory/overhead.h"
#include "memory/pools.h"
#include "memory/sparse.h"
#include "settings/runtime.h"
#include "shm/region.h"

void free_begin(struct freeing *f, CUdeviceptr address)
{
	f->found = address && runtime_gate() == GATE_LIMITED &&
		   (block_take(address, &f->entry) || table_take(TABLE_POOLED, address, &f->entry));
	if (f->found)
		region_flight(f->entry.device, 1);
}

CUresult free_end(struct freeing *f, CUresult result)
{
	if (!f->found)
		return result;
	int plain = f->entry.kind == TABLE_PLAIN, gone = result == CUDA_SUCCESS;
	if (gone && plain) {
		overflow_freed(f->entry.key);
		block_gone(&f->entry);
	} else if (gone) {
		pool_freed(&f->entry);
	} else {
		plain ? block_stays(&f->entry) : table_put_back(&f->entry);
	}
	region_flight(f->entry.device, -1);
	return result;
}

void departing_begin(struct departing *d, CUcontext context)
{
	static const enum table_kind others[] = {TABLE_ARRAY, TABLE_IMPORT, TABLE_OVERFLOW};
	*d = (struct departing){.context = NULL};
	if (!context || runtime_gate() != GATE_LIMITED)
		return;
	d->context = context;
	overhead_leave_begin(&d->overhead, context);
	if (d->overhead.found)
		region_flight(d->overhead.entry.device, 1);
	d->aside = aside_take(context);
	pages_forget((uintptr_t)context);
	d->gone[0] = block_take_all((uintptr_t)context);
	for (int i = 0; i < 3; i++)
		d->gone[i + 1] = table_take_linked(others[i], (uintptr_t)context);
}

static void settle_departed(const struct table_entry *e)
{
	switch (e->kind) {
	case TABLE_PLAIN:
		block_gone(e);
		break;
	case TABLE_IMPORT:
	case TABLE_OVERFLOW:
		account_shown_gone(e);
		break;
	default:
		region_release(e->device, e->size);
		sparse_settle(sparse_take(e->key), 1);
	}
}

/* Credits a list of entries, or puts it back. */
static void settle_list(struct table_entry *list, int gone)
{
	for (struct table_entry *next; list; list = next) {
		next = list->next;
		if (gone)
			settle_departed(list);
		else if (list->kind == TABLE_PLAIN)
			block_stays(list);
		else
			table_put_back(list);
		free(list);
	}
}

CUresult departing_end(struct departing *d, CUresult result)
{
	for (int i = 0; i < 4; i++)
		settle_list(d->gone[i], result == CUDA_SUCCESS);
	if (!d->context)
		return result;
	aside_settle(d->aside, result == CUDA_SUCCESS);
	overhead_leave_end(&d->overhead, result == CUDA_SUCCESS);
	if (d->overhead.found)
		region_flight(d->overhead.entry.device, -1);
	return result;
}
