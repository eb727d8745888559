/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.c: why no page goes unpaid, whatever threads do at once.
 *
 * - A block above SMALL_MOST gets pages of its own. They are reserved before the driver is asked
 *   and released after it has freed them, so the books are never below the truth.
 * - Small blocks share pages. Those of one device are made one after the other, under its mutex, so
 *   nobody else fills or opens a page between a decision and the driver's answer. A page is
 *   reserved first. If there is no room for one, the block goes on only when pages.h knows a page,
 *   paid for by us, whose free tail holds it.
 * - Freeing waits for the device's work, so it holds no mutex over the driver's call. A concurrent
 *   free may thus take the foreseen page away, and the driver opens another one for the block. The
 *   old page's charge is still there then, because the last block to leave a page is settled under
 *   the mutex. It moves to the new page, and nobody is credited for the old one.
 * - What is leaving still counts as being in its page. Where the driver gives an address again
 *   before the old block there is settled, the page has one payer all the same, and the last of
 *   both to leave is credited. The same holds for blocks that go with their context, and for stale
 *   ones, which the driver dropped without a call of ours.
 * - A driver that takes a page that was not foreseen is given it if there is room for it by then;
 *   else the block is freed and refused. Either way its packing is never foreseen again.
 * - A block is in its pages before it is in the table, from which others may take it at any time.
 * - A context may go while a block is made in it. Who ends the context has then not seen the block,
 *   so both look after their call, and the driver says whether the block is there.
 */
#include "memory/blocks.h"

#include "driver/resolve.h"
#include "memory/overflow.h"
#include "memory/overhead.h"
#include "model/limit.h"
#include "platform/log.h"
#include "platform/mutex.h"
#include "settings/components.h"
#include "settings/settings.h"
#include "shm/region.h"

#include <stdlib.h>

static struct {
	struct mutex mutex[HAMI_DEVICES]; /* the making of small blocks, by device */
	int distrusted;                   /* the driver does not pack as pages.h foresees */
} self;

static void release_bytes(int device, uint64_t bytes)
{
	if (bytes)
		region_release(device, bytes);
}

/* Where nothing is ever refused, nothing has to be foreseen. */
static int shares_pages(int device, uint64_t bytes)
{
	return bytes <= SMALL_MOST && settings_memory_limit(device);
}

/* Takes the mutex and a page, or finds one of ours; 0 with the mutex held, -1 without. */
static int reserve_small(struct block_charge *c, int device, uint64_t bytes)
{
	uint64_t page = limit_round_to_pages(bytes);
	region_add_in_flight(device, 1);
	mutex_take(&self.mutex[device]);
	if (region_reserve(device, page, settings_memory_limit(device)) == 0)
		c->charge.reserved = page;
	else if (!__atomic_load_n(&self.distrusted, __ATOMIC_RELAXED))
		c->page = pages_find_room(&c->packing, bytes);
	if (c->charge.reserved == page || c->page)
		return 0;
	mutex_give(&self.mutex[device]);
	region_add_in_flight(device, -1);
	return -1;
}

int block_alloc_begin(struct block_charge *c, enum pages_kind kind, uint64_t bytes)
{
	int device = charge_admit(&c->charge);
	if (device < 0)
		return c->charge.refusal;
	c->packing = (struct packing){device, kind, c->charge.context};
	c->page = 0;
	c->serial = shares_pages(device, bytes);
	if (!c->serial)
		return charge_reserve(&c->charge, device, bytes);
	if (reserve_small(c, device, bytes)) {
		components_refresh(device); /* takes locks of its own, and time */
		if (reserve_small(c, device, bytes))
			return c->charge.refusal = account_refuse(device, bytes);
	}
	c->charge.device = device;
	return 0;
}

static void unlock_device(const struct block_charge *c)
{
	if (c->serial)
		mutex_give(&self.mutex[c->charge.device]);
}

/* Says once that the driver packs otherwise. Unlocked: a log may be slow to write. */
static void log_distrust(void)
{
	log_line(LOG_WARN,
		 "the driver does not pack small allocations as foreseen: at its limit this "
		 "process gets none from now on unless a whole page is left");
}

/*
 * The block owes more than was reserved: pays the rest if that is possible. *surprised: for the
 * first time.
 */
static int pay_rest(const struct block_charge *c, const struct table_entry *block, uint64_t owed,
		    int *surprised)
{
	if (c->page && owed == PAGE_BYTES && pages_move_charge(c->page, block->key, block->size))
		return 1;
	if (c->page)
		*surprised = !__atomic_exchange_n(&self.distrusted, 1, __ATOMIC_RELAXED);
	if (region_reserve(c->charge.device, owed - c->charge.reserved,
			   settings_memory_limit(c->charge.device)))
		return 0;
	pages_pay(block->key, block->size);
	return 1;
}

/* Frees a block that the program has not been told of. Unlocked: it may wait. */
static CUresult free_at_once(CUdeviceptr address)
{
	fn_cuMemFree_v2 free_memory = ORIGINAL(cuMemFree_v2);
	overflow_freed(address);
	return free_memory ? free_memory(address) : CUDA_ERROR_NOT_SUPPORTED;
}

/* No memory to remember a block by. What cannot be freed stays charged until the process ends. */
static CUresult drop_unrecorded(const struct block_charge *c, CUdeviceptr address, uint64_t bytes)
{
	uint64_t pages = limit_round_to_pages(bytes);
	if (free_at_once(address) == CUDA_SUCCESS)
		release_bytes(c->charge.device, c->charge.reserved);
	else if (pages > c->charge.reserved)
		region_force(c->charge.device, pages - c->charge.reserved);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* A block that the driver has dropped by itself: its address is another's. */
static void remove_stale(const struct table_entry *block)
{
	pages_free_begin(block->key, block->size);
	block_free_end(block);
}

static void put_block_back(const struct table_entry *block)
{
	if (table_put_back(block))
		remove_stale(block);
}

/*
 * There is no room for what a block took. Nobody pays for its pages, unless another block has come
 * into them meanwhile, and has paid. What cannot be freed is booked, so that the books stay true.
 */
static CUresult return_block(const struct block_charge *c, const struct table_entry *block)
{
	uint64_t alone = pages_exclusive_bytes(block->key, block->size);
	if (free_at_once(block->key) == CUDA_SUCCESS) {
		uint64_t gone = pages_free_end(block->key, block->size);
		release_bytes(c->charge.device, c->charge.reserved + gone - alone);
	} else {
		uint64_t owed = alone + pages_free_cancel(block->key, block->size);
		if (owed > c->charge.reserved)
			region_force(c->charge.device, owed - c->charge.reserved);
		else
			release_bytes(c->charge.device, c->charge.reserved - owed);
		put_block_back(block);
	}
	return account_refuse(c->charge.device, block->size);
}

/* The block is paid for. From here on others may take it: with its context, say. */
static CUresult add_to_table(const struct table_entry *block)
{
	struct table_entry stale;
	int known = table_replace(block, &stale);
	if (known >= 0) {
		if (known)
			remove_stale(&stale);
		return CUDA_SUCCESS;
	}
	pages_free_begin(block->key, block->size);
	if (free_at_once(block->key) == CUDA_SUCCESS)
		block_free_end(block);
	else
		(void)pages_free_cancel(block->key, block->size);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Settles the charge of a block, and gives the mutex back. */
static CUresult settle_block(const struct block_charge *c, const struct table_entry *block)
{
	int surprised = 0;
	const struct packing *by = block->size <= SMALL_MOST ? &c->packing : NULL;
	uint64_t owed = pages_add(by, block->key, block->size, c->charge.reserved);
	int paid = owed <= c->charge.reserved ||
		   (owed != UINT64_MAX && pay_rest(c, block, owed, &surprised));
	if (paid && owed < c->charge.reserved)
		release_bytes(c->charge.device, c->charge.reserved - owed);
	if (!paid && owed != UINT64_MAX)
		pages_free_begin(block->key, block->size);
	unlock_device(c);
	if (surprised)
		log_distrust();
	if (paid)
		return add_to_table(block);
	return owed == UINT64_MAX ? drop_unrecorded(c, block->key, block->size)
				  : return_block(c, block);
}

static CUresult record_block(const struct block_charge *c, CUdeviceptr address, uint64_t bytes)
{
	struct table_entry block = {.kind = TABLE_PLAIN,
				    .device = c->charge.device,
				    .key = address,
				    .size = bytes,
				    .link = c->charge.context},
			   stale;
	/* the driver must have dropped it by itself: its address is in use again */
	int known = block_free_begin(address, &stale);
	CUresult r = settle_block(c, &block);
	if (known)
		block_free_end(&stale);
	return r;
}

int block_is_there(const struct table_entry *block)
{
	CUdeviceptr base;
	size_t bytes;
	fn_cuMemGetAddressRange_v2 range = ORIGINAL(cuMemGetAddressRange_v2);
	CUresult r = range ? range(&base, &bytes, block->key) : CUDA_ERROR_NOT_SUPPORTED;
	if (r == CUDA_SUCCESS)
		return base == block->key;
	return r != CUDA_ERROR_INVALID_VALUE && r != CUDA_ERROR_NOT_FOUND &&
	       r != CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void block_drop_if_gone(const struct table_entry *block)
{
	struct table_entry e;
	if (block_is_there(block) || !block_free_begin(block->key, &e))
		return;
	if (block_is_there(&e)) /* its address was given again meanwhile */
		block_free_cancel(&e);
	else
		block_free_end(&e);
}

void blocks_drop_gone(uint64_t context)
{
	struct table_entry *list = table_copy_linked(TABLE_PLAIN, context);
	for (struct table_entry *next; list; list = next) {
		next = list->next;
		block_drop_if_gone(list);
		free(list);
	}
}

CUresult block_alloc_end(struct block_charge *c, CUresult result, CUdeviceptr address,
			 uint64_t bytes)
{
	if (c->charge.device < 0)
		return result;
	if (result == CUDA_SUCCESS) {
		result = record_block(c, address, bytes);
		if (result == CUDA_SUCCESS && overhead_epoch() != c->charge.epoch)
			block_drop_if_gone(&(struct table_entry){.key = address});
	} else {
		release_bytes(c->charge.device, c->charge.reserved);
		unlock_device(c);
	}
	region_add_in_flight(c->charge.device, -1);
	return result;
}

int block_free_begin(CUdeviceptr address, struct table_entry *out)
{
	if (!table_take(TABLE_PLAIN, address, out))
		return 0;
	pages_free_begin(out->key, out->size);
	return 1;
}

struct table_entry *block_free_all_begin(uint64_t context)
{
	struct table_entry *list = table_take_linked(TABLE_PLAIN, context);
	for (const struct table_entry *e = list; e; e = e->next)
		pages_free_begin(e->key, e->size);
	return list;
}

void block_free_end(const struct table_entry *block)
{
	int serial = shares_pages(block->device, block->size);
	if (serial && pages_try_leave_shared(block->key, block->size))
		return;
	if (serial)
		mutex_take(&self.mutex[block->device]);
	release_bytes(block->device, pages_free_end(block->key, block->size));
	if (serial)
		mutex_give(&self.mutex[block->device]);
}

void block_free_cancel(const struct table_entry *block)
{
	uint64_t owed = pages_free_cancel(block->key, block->size);
	if (owed)
		region_force(block->device, owed);
	put_block_back(block);
}

void blocks_after_fork(void)
{
	for (int i = 0; i < HAMI_DEVICES; i++)
		/* another thread of the parent may have held it */
		self.mutex[i] = (struct mutex){0};
}
