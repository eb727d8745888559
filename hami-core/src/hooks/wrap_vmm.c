/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_vmm.c: physical handles and mappings (see handles.h). The device is the one the allocation
 * names, not the current one.
 */
#include "driver/resolve.h"
#include "memory/account.h"
#include "memory/handles.h"
#include "settings/settings.h"

CUresult hook_mem_create(original_mem_create original, CUmemGenericAllocationHandle *handle,
			 size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct charge c;
	if (!prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return original(handle, bytes, prop, flags); /* host memory is not the device's */
	if (charge_begin_on(&c, prop->location.id, bytes))
		return c.refusal;
	CUresult r = original(handle, bytes, prop, flags);
	return charge_end(&c, r, TABLE_HANDLE, r == CUDA_SUCCESS ? *handle : 0);
}

CUresult hook_mem_release(original_mem_release original, CUmemGenericAllocationHandle handle)
{
	struct handle_release release;
	handle_release_begin(&release, handle);
	return handle_release_end(&release, original(handle));
}

CUresult hook_mem_retain(original_mem_retain original, CUmemGenericAllocationHandle *handle,
			 void *address)
{
	CUresult r = original(handle, address);
	if (r == CUDA_SUCCESS)
		handle_use(*handle);
	return r;
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
	int known = handle_use(handle); /* before the call: a release may run beside it */
	CUresult r = original(pointer, bytes, offset, handle, flags);
	if (known && r == CUDA_SUCCESS)
		handle_mapped(handle, pointer, bytes);
	else if (known)
		handle_drop(handle);
	return r;
}

CUresult hook_mem_unmap(original_mem_unmap original, CUdeviceptr pointer, size_t bytes)
{
	/* Before the call: the range may be mapped again at once. */
	struct mapping *list = handles_unmap_begin(pointer, bytes);
	return handles_unmap_end(list, original(pointer, bytes));
}
