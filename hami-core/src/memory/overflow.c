/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/overflow.h"

#include "model/limit.h"
#include "driver/resolve.h"
#include "settings/settings.h"

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

CUresult overflow_alloc(struct block_charge *c, CUresult refusal, CUdeviceptr *pointer,
			uint64_t bytes)
{
	if (refusal != CUDA_ERROR_OUT_OF_MEMORY || c->charge.device < 0 ||
	    !settings_oversubscribes())
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
	account_add_uncounted(TABLE_OVERFLOW, c->charge.device, *pointer,
			      limit_round_to_pages(bytes),
			      (CUcontext)(uintptr_t)c->charge.context);
	return CUDA_SUCCESS;
}

void overflow_freed(CUdeviceptr pointer)
{
	struct table_entry e;
	if (settings_oversubscribes() && table_take(TABLE_OVERFLOW, pointer, &e))
		account_remove_uncounted(&e);
}

uint64_t overflow_visible_free(uint64_t card_free)
{
	return settings_oversubscribes() ? UINT64_MAX : card_free;
}

uint64_t overflow_visible_total(uint64_t card_total, uint64_t limit)
{
	return settings_oversubscribes() && limit ? limit : limit_visible_total(card_total, limit);
}
