/* SPDX-License-Identifier: Apache-2.0 */
/* wrap_memory.c: plain memory and what programs are told about it. */
#include "context/current.h"
#include "memory/blocks.h"
#include "memory/release.h"
#include "model/limit.h"
#include "memory/overflow.h"
#include "memory/overhead.h"
#include "shm/region.h"
#include "driver/resolve.h"
#include "settings/components.h"
#include "settings/settings.h"

CUresult hook_mem_alloc(original_mem_alloc original, CUdeviceptr *pointer, size_t bytes)
{
	struct block_charge c;
	if (block_alloc_begin(&c, PAGES_PLAIN, bytes))
		return c.charge.refusal;
	CUresult r = overflow_alloc(&c, original(pointer, bytes), pointer, bytes);
	return block_alloc_end(&c, r, r == CUDA_SUCCESS ? *pointer : 0, bytes);
}

CUresult hook_mem_alloc_v1(original_mem_alloc_v1 original, CUdeviceptr_v1 *pointer,
			   unsigned int bytes)
{
	struct block_charge c;
	if (block_alloc_begin(&c, PAGES_UNKNOWN, bytes))
		return c.charge.refusal;
	CUresult r = original(pointer, bytes);
	return block_alloc_end(&c, r, r == CUDA_SUCCESS ? *pointer : 0, bytes);
}

CUresult hook_mem_alloc_managed(original_mem_alloc_managed original, CUdeviceptr *pointer,
				size_t bytes, unsigned int flags)
{
	struct block_charge c;
	if (block_alloc_begin(&c, PAGES_MANAGED, bytes))
		return c.charge.refusal;
	CUresult r = original(pointer, bytes, flags);
	return block_alloc_end(&c, r, r == CUDA_SUCCESS ? *pointer : 0, bytes);
}

/* Bytes of rows, or more than there can be. */
static uint64_t pitched_bytes(uint64_t pitch, uint64_t height)
{
	uint64_t bytes;
	return __builtin_mul_overflow(pitch, height, &bytes) ? UINT64_MAX : bytes;
}

/*
 * What the driver makes of a width; block_alloc_end sees it where another driver makes more of it.
 */
static uint64_t usual_pitch(uint64_t width)
{
	return width > UINT64_MAX - (PACK_BYTES - 1) ? UINT64_MAX
						     : (width + PACK_BYTES - 1) & ~(PACK_BYTES - 1);
}

CUresult hook_mem_alloc_pitch(original_mem_alloc_pitch original, CUdeviceptr *pointer,
			      size_t *pitch, size_t width, size_t height, unsigned int element)
{
	struct block_charge c;
	if (block_alloc_begin(&c, PAGES_PLAIN, pitched_bytes(usual_pitch(width), height)))
		return c.charge.refusal;
	CUresult r = original(pointer, pitch, width, height, element);
	int taken = r == CUDA_SUCCESS;
	return block_alloc_end(&c, r, taken ? *pointer : 0,
			       taken ? pitched_bytes(*pitch, height) : 0);
}

CUresult hook_mem_alloc_pitch_v1(original_mem_alloc_pitch_v1 original, CUdeviceptr_v1 *pointer,
				 unsigned int *pitch, unsigned int width, unsigned int height,
				 unsigned int element)
{
	struct block_charge c;
	if (block_alloc_begin(&c, PAGES_UNKNOWN, pitched_bytes(usual_pitch(width), height)))
		return c.charge.refusal;
	CUresult r = original(pointer, pitch, width, height, element);
	int taken = r == CUDA_SUCCESS;
	return block_alloc_end(&c, r, taken ? *pointer : 0,
			       taken ? pitched_bytes(*pitch, height) : 0);
}

CUresult hook_mem_free(original_mem_free original, CUdeviceptr pointer)
{
	struct address_release f;
	release_address_begin(&f, pointer);
	return release_address_end(&f, original(pointer));
}

CUresult hook_mem_free_v1(original_mem_free_v1 original, CUdeviceptr_v1 pointer)
{
	struct address_release f;
	release_address_begin(&f, pointer);
	return release_address_end(&f, original(pointer));
}

/* Turns the card's figures into the container's; behind a closed gate nothing is free. */
static void confine_to_limit(size_t *left, size_t *all)
{
	int device = settings_gate() == GATE_LIMITED ? settings_current_device() : -1;
	if (device < 0) {
		*left = 0;
		return;
	}
	overhead_note_context(device, current_context());
	components_refresh(device);
	uint64_t limit = settings_memory_limit(device);
	if (limit)
		*left = limit_visible_free(overflow_visible_free(*left), region_used(device),
					   limit);
	*all = overflow_visible_total(*all, limit);
}

CUresult hook_mem_get_info(original_mem_get_info original, size_t *free_bytes, size_t *total)
{
	size_t left = 0, all = 0;
	if (settings_gate() == GATE_OPEN)
		return original(free_bytes, total);
	CUresult r = original(&left, &all);
	if (r != CUDA_SUCCESS)
		return r;
	confine_to_limit(&left, &all);
	if (free_bytes)
		*free_bytes = left;
	if (total)
		*total = all;
	return r;
}

CUresult hook_mem_get_info_v1(original_mem_get_info_v1 original, unsigned int *free_bytes,
			      unsigned int *total)
{
	size_t left = 0, all = 0;
	fn_cuMemGetInfo_v2 wide = ORIGINAL(cuMemGetInfo_v2);
	if (settings_gate() == GATE_OPEN || !wide)
		return original(free_bytes, total);
	CUresult r = hook_mem_get_info(wide, &left, &all);
	if (r == CUDA_SUCCESS && free_bytes)
		*free_bytes = limit_clamp_u32(left);
	if (r == CUDA_SUCCESS && total)
		*total = limit_clamp_u32(all);
	return r;
}

/* Index of a device whose total the driver has told, if it is to be corrected; else negative. */
static int limited_index(CUresult result, const void *total, CUdevice device)
{
	if (result != CUDA_SUCCESS || !total || settings_gate() != GATE_LIMITED)
		return -1;
	return settings_device(device);
}

CUresult hook_device_total_mem(original_device_total_mem original, size_t *bytes, CUdevice device)
{
	CUresult r = original(bytes, device);
	int index = limited_index(r, bytes, device);
	if (index >= 0)
		*bytes = overflow_visible_total(*bytes, settings_memory_limit(index));
	return r;
}

CUresult hook_device_total_mem_v1(original_device_total_mem_v1 original, unsigned int *bytes,
				  CUdevice device)
{
	CUresult r = original(bytes, device);
	int index = limited_index(r, bytes, device);
	if (index >= 0)
		*bytes = limit_clamp_u32(
			overflow_visible_total(*bytes, settings_memory_limit(index)));
	return r;
}
