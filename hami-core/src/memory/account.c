/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/account.h"

#include "model/limit.h"
#include "platform/log.h"
#include "driver/resolve.h"
#include "memory/overhead.h"
#include "shm/region.h"
#include "settings/components.h"
#include "settings/settings.h"
#include "model/table.h"

static int told[HAMI_DEVICES]; /* the refusal of a device has been logged as a warning */

CUresult account_refuse(int device, uint64_t bytes)
{
	enum log_level level = __atomic_exchange_n(&told[device], 1, __ATOMIC_RELAXED) ? LOG_INFO
										       : LOG_WARN;
	int large = bytes >= 1 << 20;
	log_line(level, "device %d: %llu %s refused: the container uses %llu of its %llu MiB",
		 device, (unsigned long long)(large ? bytes >> 20 : bytes), large ? "MiB" : "bytes",
		 (unsigned long long)(region_used(device) >> 20),
		 (unsigned long long)(settings_memory_limit(device) >> 20));
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult account_reserve(int device, uint64_t bytes)
{
	uint64_t limit = settings_memory_limit(device);
	if (region_reserve(device, bytes, limit) == 0)
		return CUDA_SUCCESS;
	components_refresh(device);
	return region_reserve(device, bytes, limit) == 0 ? CUDA_SUCCESS
							 : CUDA_ERROR_OUT_OF_MEMORY;
}

/*
 * Whether the gate lets a call on to the region: 1; 0 with c->refusal, or when nothing is
 * limited.
 */
static int is_limited(struct charge *c)
{
	enum gate gate = settings_gate();
	*c = (struct charge){.device = -1,
			     .refusal = gate == GATE_CLOSED ? CUDA_ERROR_NOT_PERMITTED
							    : CUDA_SUCCESS};
	return gate == GATE_LIMITED;
}

/* A device that the limits do not name gives out nothing. */
static int refuse_unnamed_device(struct charge *c, int device)
{
	if (device == -1)
		c->refusal = CUDA_ERROR_NOT_PERMITTED;
	return device;
}

/*
 * The current device, or -2 with c->refusal. Without a context the driver would refuse the call; it
 * is not asked to, because another thread may bring the context back in between, and what the call
 * took then would be charged to nobody.
 */
static int find_current_device(struct charge *c, CUcontext *context)
{
	CUdevice ordinal;
	fn_cuCtxGetDevice get = ORIGINAL(cuCtxGetDevice);
	for (int tries = 3; tries; tries--) {
		int device = overhead_note_current(context);
		if (device != -2)
			return device;
		c->refusal = get ? get(&ordinal) : CUDA_ERROR_NOT_INITIALIZED;
		if (c->refusal != CUDA_SUCCESS)
			return -2;
	}
	c->refusal = CUDA_ERROR_NOT_PERMITTED;
	return -2;
}

int charge_admit(struct charge *c)
{
	CUcontext context = NULL;
	if (!is_limited(c))
		return -1;
	c->epoch = overhead_epoch();
	int device = refuse_unnamed_device(c, find_current_device(c, &context));
	c->context = (uintptr_t)context;
	return device;
}

int charge_reserve(struct charge *c, int device, uint64_t bytes)
{
	uint64_t pages = limit_round_to_pages(bytes);
	for (int tries = 2;;) {
		region_add_in_flight(device, 1); /* before the books change */
		if (region_reserve(device, pages, settings_memory_limit(device)) == 0)
			break;
		region_add_in_flight(device, -1);
		if (!--tries)
			return c->refusal = account_refuse(device, bytes);
		components_refresh(device);
	}
	c->reserved = pages;
	c->device = device;
	return 0;
}

int charge_begin(struct charge *c, uint64_t bytes)
{
	int device = charge_admit(c);
	return device < 0 ? (int)c->refusal : charge_reserve(c, device, bytes);
}

int charge_begin_on(struct charge *c, CUdevice ordinal, uint64_t bytes)
{
	CUcontext context;
	int device = is_limited(c) ? refuse_unnamed_device(c, settings_device(ordinal)) : -1;
	if (device < 0)
		return c->refusal;
	/* else nobody looks at it in a program that allocates so alone */
	(void)overhead_note_current(&context);
	return charge_reserve(c, device, bytes);
}

CUresult charge_end(struct charge *c, CUresult result, enum table_kind kind, uint64_t handle)
{
	struct table_entry e = {.kind = kind,
				.device = c->device,
				.key = handle,
				.size = c->reserved,
				.link = c->context,
				.uses = 1};
	struct table_entry stale;
	if (c->device < 0)
		return result;
	if (result != CUDA_SUCCESS)
		region_release(c->device, c->reserved);
	/* without memory for it, the charge stays until the process ends */
	else if (table_replace(&e, &stale) > 0) /* the driver has dropped that one by itself */
		region_release(stale.device, stale.size);
	region_add_in_flight(c->device, -1);
	return result;
}

static enum vgpu_shown shown_as(enum table_kind kind)
{
	return kind == TABLE_IMPORT ? VGPU_IMPORTED : VGPU_OVERFLOW;
}

void account_add_uncounted(enum table_kind kind, int device, uint64_t key, uint64_t bytes,
			   CUcontext context)
{
	struct table_entry e = {.kind = kind,
				.device = device,
				.key = key,
				.size = bytes,
				.link = (uintptr_t)context,
				.uses = 1};
	if (table_add(&e) == 0)
		region_add_uncounted(device, shown_as(kind), (int64_t)bytes);
}

void account_remove_uncounted(const struct table_entry *entry)
{
	region_add_uncounted(entry->device, shown_as(entry->kind), -(int64_t)entry->size);
}
