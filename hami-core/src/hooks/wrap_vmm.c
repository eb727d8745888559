/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_vmm.c: physical handles and mappings (see handles.h). The device is the one the allocation
 * names, not the current one.
 */
#include "driver/resolve.h"
#include "memory/account.h"
#include "memory/handles.h"
#include "model/location.h"
#include "settings/settings.h"

CUresult hook_mem_create(original_mem_create original, CUmemGenericAllocationHandle *handle,
			 size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct charge c;
	CUdevice device = 0;
	enum location_kind kind = prop ? location_kind_of(prop->location, &device) : LOCATION_HOST;
	if (kind == LOCATION_HOST)
		return original(handle, bytes, prop, flags); /* host memory is not the device's */
	if (kind == LOCATION_DEVICE ? charge_begin_on(&c, device, bytes) : charge_begin(&c, bytes))
		return c.refusal;
	CUresult r = original(handle, bytes, prop, flags);
	return handle_create_end(&c, r, r == CUDA_SUCCESS ? *handle : 0);
}

CUresult hook_mem_release(original_mem_release original, CUmemGenericAllocationHandle handle)
{
	struct physical *p = handle_release_begin(handle);
	return handle_release_end(p, original(handle));
}

CUresult hook_mem_retain(original_mem_retain original, CUmemGenericAllocationHandle *handle,
			 void *address)
{
	struct handle_retain c;
	handle_retain_begin(&c, (uintptr_t)address);
	return handle_retain_end(&c, original(handle, address), handle);
}

CUresult hook_import_handle(original_import_handle original, CUmemGenericAllocationHandle *handle,
			    void *shared, int type)
{
	CUresult r = original(handle, shared, type);
	if (r == CUDA_SUCCESS && settings_gate() == GATE_LIMITED)
		handle_imported(*handle);
	return r;
}

CUresult hook_mem_map(original_mem_map original, CUdeviceptr pointer, size_t bytes, size_t offset,
		      CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct physical *p = handle_hold(handle);
	return handle_map_end(p, original(pointer, bytes, offset, handle, flags), pointer, bytes);
}

CUresult hook_mem_unmap(original_mem_unmap original, CUdeviceptr pointer, size_t bytes)
{
	struct unmapping u;
	/* Before the call: the range may be mapped again at once. */
	handles_unmap_begin(&u, pointer, bytes);
	return handles_unmap_end(&u, original(pointer, bytes));
}
