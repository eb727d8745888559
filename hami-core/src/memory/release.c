/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/release.h"

#include <stdlib.h>

#include "memory/account.h"
#include "memory/context_limits.h"
#include "memory/blocks.h"
#include "memory/overflow.h"
#include "memory/overhead.h"
#include "memory/pools.h"
#include "memory/sparse.h"
#include "settings/settings.h"
#include "shm/region.h"

void release_address_begin(struct address_release *f, CUdeviceptr address)
{
	f->found = address && settings_gate() == GATE_LIMITED &&
		   (block_free_begin(address, &f->entry) ||
		    table_take(TABLE_POOLED, address, &f->entry));
	if (f->found)
		region_add_in_flight(f->entry.device, 1);
}

CUresult release_address_end(struct address_release *f, CUresult result)
{
	if (!f->found)
		return result;
	int plain = f->entry.kind == TABLE_PLAIN, gone = result == CUDA_SUCCESS;
	if (gone && plain) {
		overflow_freed(f->entry.key);
		block_free_end(&f->entry);
	} else if (gone) {
		pool_freed(&f->entry);
	} else if (plain) {
		block_free_cancel(&f->entry);
		block_drop_if_gone(&f->entry);
	} else if (table_put_back(&f->entry)) {
		pool_freed(&f->entry);
	}
	region_add_in_flight(f->entry.device, -1);
	return result;
}

CUresult release_address_doubt(struct address_release *f)
{
	if (f->found && f->entry.kind == TABLE_PLAIN)
		return release_address_end(f, block_is_there(&f->entry) ? CUDA_ERROR_UNKNOWN
									: CUDA_SUCCESS),
		       CUDA_SUCCESS;
	if (f->found) {
		pool_perhaps_freed(&f->entry);
		region_add_in_flight(f->entry.device, -1);
	}
	return CUDA_SUCCESS;
}

void release_context_begin(struct context_release *d, CUcontext context)
{
	static const enum table_kind others[] = {TABLE_ARRAY, TABLE_MODULE, TABLE_IMPORT,
						TABLE_OVERFLOW};
	*d = (struct context_release){.context = NULL};
	if (!context || settings_gate() != GATE_LIMITED)
		return;
	d->context = context;
	overhead_remove_context_begin(&d->overhead, context);
	if (d->overhead.found)
		region_add_in_flight(d->overhead.entry.device, 1);
	d->context_limits = context_limits_take(context);
	pages_forget_context((uintptr_t)context);
	d->gone[0] = block_free_all_begin((uintptr_t)context);
	for (int i = 0; i < 4; i++)
		d->gone[i + 1] = table_take_linked(others[i], (uintptr_t)context);
}

static void credit_entry(const struct table_entry *e)
{
	switch (e->kind) {
	case TABLE_PLAIN:
		block_free_end(e);
		break;
	case TABLE_IMPORT:
	case TABLE_OVERFLOW:
		account_remove_uncounted(e);
		break;
	default:
		region_release(e->device, e->size);
	}
}

/* Credits a list of entries, or puts it back. */
static void settle_list(struct table_entry *list, int gone)
{
	for (struct table_entry *next; list; list = next) {
		next = list->next;
		if (gone && list->kind == TABLE_ARRAY)
			sparse_array_gone(list->key);
		if (!gone && list->kind == TABLE_PLAIN)
			block_free_cancel(list);
		else if (gone || table_put_back(list))
			credit_entry(list);
		free(list);
	}
}

CUresult release_context_end(struct context_release *d, CUresult result)
{
	for (int i = 0; i < 5; i++)
		settle_list(d->gone[i], result == CUDA_SUCCESS);
	if (!d->context)
		return result;
	context_limits_settle(d->context_limits, result == CUDA_SUCCESS);
	overhead_remove_context_end(&d->overhead, result == CUDA_SUCCESS);
	/* After the epoch has changed: what is booked later is looked at by who books it. */
	if (result == CUDA_SUCCESS)
		blocks_drop_gone((uintptr_t)d->context);
	if (d->overhead.found)
		region_add_in_flight(d->overhead.entry.device, -1);
	return result;
}
