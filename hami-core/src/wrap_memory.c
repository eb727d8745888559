/* SPDX-License-Identifier: Apache-2.0 */
/* wrap_memory.c: plain memory and what programs are told about it. */
#include "account.h"
#include "limit.h"
#include "overflow.h"
#include "overhead.h"
#include "region.h"
#include "resolve.h"
#include "runtime.h"

CUresult hook_mem_alloc(original_mem_alloc original, CUdeviceptr *pointer, size_t bytes)
{
	struct charge c;
	if (charge_begin(&c, bytes))
		return c.refusal;
	CUresult r = overflow_alloc(&c, original(pointer, bytes), pointer, bytes);
	return charge_end(&c, r, r == CUDA_SUCCESS ? *pointer : 0, bytes);
}

CUresult hook_mem_alloc_v1(original_mem_alloc_v1 original, CUdeviceptr_v1 *pointer, unsigned int bytes)
{
	struct charge c;
	if (charge_begin(&c, bytes))
		return c.refusal;
	CUresult r = original(pointer, bytes);
	return charge_end(&c, r, r == CUDA_SUCCESS ? *pointer : 0, bytes);
}

CUresult hook_mem_alloc_managed(original_mem_alloc_managed original, CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
	struct charge c;
	if (charge_begin(&c, bytes))
		return c.refusal;
	CUresult r = original(pointer, bytes, flags);
	return charge_end(&c, r, r == CUDA_SUCCESS ? *pointer : 0, bytes);
}

/* Bytes of width * height, or more than there can be. The true pitch is known only afterwards. */
static uint64_t area(uint64_t width, uint64_t height)
{
	uint64_t bytes;
	return __builtin_mul_overflow(width, height, &bytes) ? UINT64_MAX : bytes;
}

CUresult hook_mem_alloc_pitch(original_mem_alloc_pitch original, CUdeviceptr *pointer, size_t *pitch, size_t width,
			      size_t height, unsigned int element)
{
	struct charge c;
	if (charge_begin(&c, area(width, height)))
		return c.refusal;
	CUresult r = original(pointer, pitch, width, height, element);
	return charge_end(&c, r, r == CUDA_SUCCESS ? *pointer : 0, r == CUDA_SUCCESS ? area(*pitch, height) : 0);
}

CUresult hook_mem_alloc_pitch_v1(original_mem_alloc_pitch_v1 original, CUdeviceptr_v1 *pointer, unsigned int *pitch,
				 unsigned int width, unsigned int height, unsigned int element)
{
	struct charge c;
	if (charge_begin(&c, area(width, height)))
		return c.refusal;
	CUresult r = original(pointer, pitch, width, height, element);
	return charge_end(&c, r, r == CUDA_SUCCESS ? *pointer : 0, r == CUDA_SUCCESS ? area(*pitch, height) : 0);
}

CUresult hook_mem_free(original_mem_free original, CUdeviceptr pointer)
{
	struct freeing f;
	free_begin(&f, pointer);
	return free_end(&f, original(pointer));
}

CUresult hook_mem_free_v1(original_mem_free_v1 original, CUdeviceptr_v1 pointer)
{
	struct freeing f;
	free_begin(&f, pointer);
	return free_end(&f, original(pointer));
}

/* Turns the card's figures into the container's; behind a closed gate nothing is free. */
static void confine(size_t *left, size_t *all)
{
	int device = runtime_gate() == GATE_LIMITED ? runtime_current_device() : -1;
	if (device < 0) {
		*left = 0;
		return;
	}
	pools_refresh();
	graph_memory_refresh();
	overhead_seen(device, current_context());
	overhead_settle(device);
	uint64_t limit = runtime_memory_limit(device);
	*left = limit ? limit_free(overflow_free(*left), region_used(device), limit) : *left;
	*all = overflow_total(*all, limit);
}

CUresult hook_mem_get_info(original_mem_get_info original, size_t *free_bytes, size_t *total)
{
	size_t left = 0, all = 0;
	if (runtime_gate() == GATE_OPEN)
		return original(free_bytes, total);
	CUresult r = original(&left, &all);
	if (r != CUDA_SUCCESS)
		return r;
	confine(&left, &all);
	if (free_bytes)
		*free_bytes = left;
	if (total)
		*total = all;
	return r;
}

CUresult hook_mem_get_info_v1(original_mem_get_info_v1 original, unsigned int *free_bytes, unsigned int *total)
{
	size_t left = 0, all = 0;
	fn_cuMemGetInfo_v2 wide = ORIGINAL(cuMemGetInfo_v2);
	if (runtime_gate() == GATE_OPEN || !wide)
		return original(free_bytes, total);
	CUresult r = hook_mem_get_info(wide, &left, &all);
	if (r == CUDA_SUCCESS && free_bytes)
		*free_bytes = limit_narrow(left);
	if (r == CUDA_SUCCESS && total)
		*total = limit_narrow(all);
	return r;
}

CUresult hook_device_total_mem(original_device_total_mem original, size_t *bytes, CUdevice device)
{
	CUresult r = original(bytes, device);
	int index = r == CUDA_SUCCESS && bytes && runtime_gate() == GATE_LIMITED ? runtime_device(device) : -1;
	if (index >= 0)
		*bytes = overflow_total(*bytes, runtime_memory_limit(index));
	return r;
}

CUresult hook_device_total_mem_v1(original_device_total_mem_v1 original, unsigned int *bytes, CUdevice device)
{
	CUresult r = original(bytes, device);
	int index = r == CUDA_SUCCESS && bytes && runtime_gate() == GATE_LIMITED ? runtime_device(device) : -1;
	if (index >= 0)
		*bytes = limit_narrow(overflow_total(*bytes, runtime_memory_limit(index)));
	return r;
}
