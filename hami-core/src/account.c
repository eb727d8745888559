/* SPDX-License-Identifier: Apache-2.0 */
#include "account.h"

#include <stdlib.h>

#include "limit.h"
#include "log.h"
#include "overflow.h"
#include "overhead.h"
#include "region.h"
#include "resolve.h"
#include "runtime.h"
#include "table.h"

static int told[HAMI_DEVICES]; /* the refusal of a device has been logged as a warning */

CUresult account_refuse(int device, uint64_t bytes)
{
	enum log_level level = __atomic_exchange_n(&told[device], 1, __ATOMIC_RELAXED) ? LOG_INFO : LOG_WARN;
	int large = bytes >= 1 << 20;
	log_line(level, "device %d: %llu %s refused: the container uses %llu of its %llu MiB", device,
		 (unsigned long long)(large ? bytes >> 20 : bytes), large ? "MiB" : "bytes",
		 (unsigned long long)(region_used(device) >> 20),
		 (unsigned long long)(runtime_memory_limit(device) >> 20));
	return CUDA_ERROR_OUT_OF_MEMORY;
}

int account_reserve_once(int device, uint64_t bytes)
{
	return region_reserve(device, bytes, runtime_memory_limit(device));
}

void account_refresh(int device)
{
	pools_refresh();
	graph_memory_refresh();
	overhead_settle(device); /* last: what it finds is what the others do not explain */
}

CUresult account_reserve(int device, uint64_t bytes)
{
	if (account_reserve_once(device, bytes) == 0)
		return CUDA_SUCCESS;
	account_refresh(device);
	return account_reserve_once(device, bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The device of a call by the gate: an index; -1 with a refusal; -2: let the driver answer. */
static int admitted_device(struct charge *c, const CUdevice *named)
{
	*c = (struct charge){.device = -1};
	enum gate gate = runtime_gate();
	if (gate == GATE_OPEN)
		return -2;
	int device = gate == GATE_CLOSED ? -1 : named ? runtime_device(*named) : runtime_current_device();
	if (device == -1)
		c->refusal = CUDA_ERROR_NOT_PERMITTED;
	return device;
}

CUcontext current_context(void)
{
	CUcontext context = NULL;
	fn_cuCtxGetCurrent get = ORIGINAL(cuCtxGetCurrent);
	return get && get(&context) == CUDA_SUCCESS ? context_owner(context) : NULL;
}

int charge_begin(struct charge *c, uint64_t bytes)
{
	int device = admitted_device(c, NULL);
	if (device < 0)
		return c->refusal;
	uint64_t pages = limit_pages(bytes);
	CUcontext context = current_context();
	c->context = (uintptr_t)context;
	overhead_seen(device, context);
	if (account_reserve(device, pages) == CUDA_SUCCESS)
		c->reserved = pages;
	else if (bytes >= PAGE_BYTES || !table_has_partial_page(device))
		return c->refusal = account_refuse(device, bytes);
	/* else: it may fit into a page that is ours already; charge_end finds out */
	c->device = device;
	region_flight(device, 1);
	return 0;
}

int charge_begin_on(struct charge *c, CUdevice ordinal, uint64_t bytes)
{
	int device = admitted_device(c, &ordinal);
	if (device < 0)
		return c->refusal;
	if (runtime_current_device() == device)
		overhead_seen(device, current_context()); /* else nobody looks at it in a program that allocates so alone */
	if (account_reserve(device, limit_pages(bytes)) != CUDA_SUCCESS)
		return c->refusal = account_refuse(device, bytes);
	c->reserved = limit_pages(bytes);
	c->device = device;
	region_flight(device, 1);
	return 0;
}

CUresult charge_keep(struct charge *c, CUresult result, enum table_kind kind, uint64_t handle)
{
	struct table_entry e = {.kind = kind, .device = c->device, .key = handle, .size = c->reserved,
				.link = c->context, .uses = 1};
	if (c->device >= 0 && result == CUDA_SUCCESS)
		table_add(&e); /* without memory for it, the charge stays until the process ends */
	else if (c->device >= 0)
		region_release(c->device, c->reserved);
	if (c->device >= 0)
		region_flight(c->device, -1);
	return result;
}

/* Forgets an allocation that the driver must have dropped by itself: its address is in use again. */
static void drop_stale(CUdeviceptr address)
{
	struct table_entry old;
	if (table_take(TABLE_PLAIN, address, &old))
		region_release(old.device, table_free_pages(&old));
}

/*
 * The allocation added `added` bytes of pages, more than were reserved and more than are
 * left: frees it. Pages that another allocation has come into meanwhile stay, and are booked.
 */
static CUresult undo(const struct charge *c, CUdeviceptr address, uint64_t bytes, uint64_t added)
{
	struct table_entry e;
	fn_cuMemFree_v2 free_memory = ORIGINAL(cuMemFree_v2);
	if (!table_take(TABLE_PLAIN, address, &e))
		return CUDA_SUCCESS; /* freed by another thread already: that one settled it */
	overflow_freed(address);
	if (free_memory && free_memory(address) == CUDA_SUCCESS)
		added -= table_free_pages(&e);
	else
		table_put_back(&e);
	region_force(c->device, added);
	region_release(c->device, c->reserved);
	return account_refuse(c->device, bytes);
}

static CUresult settle_charge(const struct charge *c, CUresult result, CUdeviceptr address, uint64_t bytes)
{
	if (result != CUDA_SUCCESS) {
		region_release(c->device, c->reserved);
		return result;
	}
	drop_stale(address);
	uint64_t pages = table_add_plain(c->device, address, bytes, c->context);
	if (pages == UINT64_MAX)
		return result; /* no memory to remember it by: what was reserved stays charged */
	if (pages > c->reserved && account_reserve(c->device, pages - c->reserved) != CUDA_SUCCESS)
		return undo(c, address, bytes, pages);
	if (pages < c->reserved)
		region_release(c->device, c->reserved - pages);
	return result;
}

CUresult charge_end(struct charge *c, CUresult result, CUdeviceptr address, uint64_t bytes)
{
	if (c->device < 0)
		return result;
	result = settle_charge(c, result, address, bytes);
	region_flight(c->device, -1);
	return result;
}

void free_begin(struct freeing *f, CUdeviceptr address)
{
	f->found = address && runtime_gate() == GATE_LIMITED &&
		   (table_take(TABLE_PLAIN, address, &f->entry) || table_take(TABLE_POOLED, address, &f->entry));
	if (f->found)
		region_flight(f->entry.device, 1);
}

CUresult free_end(struct freeing *f, CUresult result)
{
	if (!f->found)
		return result;
	if (result != CUDA_SUCCESS)
		table_put_back(&f->entry);
	else if (f->entry.kind == TABLE_PLAIN)
		overflow_freed(f->entry.key), region_release(f->entry.device, table_free_pages(&f->entry));
	else
		pool_freed(&f->entry);
	region_flight(f->entry.device, -1);
	return result;
}

static enum vgpu_shown shown_as(enum table_kind kind)
{
	return kind == TABLE_IMPORT ? VGPU_IMPORTED : VGPU_OVERFLOW;
}

void account_show(enum table_kind kind, int device, uint64_t key, uint64_t bytes, CUcontext context)
{
	struct table_entry e = {.kind = kind, .device = device, .key = key, .size = bytes, .link = (uintptr_t)context, .uses = 1};
	if (table_add(&e) == 0)
		region_show(device, shown_as(kind), (int64_t)bytes);
}

void account_shown_gone(const struct table_entry *entry)
{
	region_show(entry->device, shown_as(entry->kind), -(int64_t)entry->size);
}

void context_leave_begin(struct departing *d, CUcontext context)
{
	static const enum table_kind kinds[] = {TABLE_PLAIN, TABLE_ARRAY, TABLE_IMPORT, TABLE_OVERFLOW};
	*d = (struct departing){.context = NULL};
	if (!context || runtime_gate() != GATE_LIMITED)
		return;
	d->context = context;
	for (int i = 0; i < 4; i++)
		d->gone[i] = table_take_linked(kinds[i], (uintptr_t)context);
}

/* Credits a list of entries, or puts it back. */
static void settle_list(struct table_entry *list, int gone)
{
	for (struct table_entry *next; list; list = next) {
		next = list->next;
		if (!gone)
			table_put_back(list);
		else if (list->kind == TABLE_IMPORT || list->kind == TABLE_OVERFLOW)
			account_shown_gone(list);
		else
			region_release(list->device, list->kind == TABLE_PLAIN ? table_free_pages(list) : list->size);
		if (gone && list->kind == TABLE_ARRAY)
			sparse_settle(sparse_take(list->key), 1);
		free(list);
	}
}

CUresult context_leave_end(struct departing *d, CUresult result)
{
	for (int i = 0; i < 4; i++)
		settle_list(d->gone[i], result == CUDA_SUCCESS);
	if (d->context && result == CUDA_SUCCESS)
		overhead_context_gone(d->context);
	return result;
}

void account_after_fork(void)
{
	pools_after_fork();
	sparse_after_fork();
	overhead_after_fork();
	graph_memory_after_fork();
}
