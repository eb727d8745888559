/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/overflow.h"

#include "model/limit.h"
#include "driver/resolve.h"
#include "settings/runtime.h"

/*
 * Without concurrent access every launch would move all of it, and the host may not touch it
 * meanwhile.
 */
static int shares_with_host(CUdevice device)
{
	int yes = 0;
	fn_cuDeviceGetAttribute get = ORIGINAL(cuDeviceGetAttribute);
	return get &&
	       get(&yes, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device) == CUDA_SUCCESS &&
	       yes;
}

CUresult overflow_alloc(struct charge *c, CUresult refusal, CUdeviceptr *pointer, uint64_t bytes)
{
	if (refusal != CUDA_ERROR_OUT_OF_MEMORY || c->device < 0 || !runtime_oversubscribes())
		return refusal;
	CUdevice device;
	fn_cuCtxGetDevice current = ORIGINAL(cuCtxGetDevice);
	fn_cuMemAllocManaged managed = ORIGINAL(cuMemAllocManaged);
	fn_cuMemAdvise advise = ORIGINAL(cuMemAdvise);
	if (!current || !managed || current(&device) != CUDA_SUCCESS || !shares_with_host(device))
		return refusal;
	if (managed(pointer, bytes, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS)
		return refusal;
	if (advise) { /* advice only: the memory is good without it */
		advise(*pointer, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device);
		advise(*pointer, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, device);
	}
	c->packing.kind = PAGES_MANAGED;
	account_show(TABLE_OVERFLOW, c->device, *pointer, limit_pages(bytes),
		     (CUcontext)(uintptr_t)c->context);
	return CUDA_SUCCESS;
}

void overflow_freed(CUdeviceptr pointer)
{
	struct table_entry e;
	if (runtime_oversubscribes() && table_take(TABLE_OVERFLOW, pointer, &e))
		account_shown_gone(&e);
}

uint64_t overflow_free(uint64_t card_free)
{
	return runtime_oversubscribes() ? UINT64_MAX : card_free;
}

uint64_t overflow_total(uint64_t card_total, uint64_t limit)
{
	return runtime_oversubscribes() && limit ? limit : limit_total(card_total, limit);
}
